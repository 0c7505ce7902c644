"""What workers write to the watchdog's pipe.

Promises: nothing is raised, and nobody is signalled who is no worker. Lines are the same however the bytes are cut, up
to the limit of a line. At most ten complaints are shown, each in one line that is fit for a terminal. A request that
can be read is written and read again as the same.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile

from fuzz.oracles import check_line, pieces, promise
from fuzz.shapes import JSON_LINES
from fuzz.target import Target
from holdfast.watchdog.fifo import LINE_MAX_BYTES, READ_BYTES, LineSplitter
from holdfast.watchdog.fifo_server import COMPLAINTS_MAX, FileTimerServer
from holdfast.watchdog.request import FileTimerRequest, parse_request
from holdfast.watchdog.timers import Timers

COMPLAINT_MAX_CHARS = 500
NOW = 1_770_000_000.0


def _lines(parts: list[bytes]) -> list[bytes]:
    splitter = LineSplitter()
    return [line[:LINE_MAX_BYTES] for part in parts for line in splitter.feed(part)]


def _run(data: bytes) -> None:
    whole = _lines([data])
    promise(whole == _lines(list(pieces(data))), "the lines depend on how the bytes are cut")
    timers = Timers()
    for line in whole:
        try:
            request = parse_request(line)
        except ValueError:
            continue
        again = parse_request(request.to_json().encode())
        promise(again == request, "a request is another one when it is read again")
        timers.register(request)
        timers.next_expiry()
    for now in (0.0, NOW, float("inf")):
        timers.take_expired(now)
    _check_server(data[:READ_BYTES])


def _check_server(data: bytes) -> None:
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(said):
        path = os.path.join(directory, "timers")
        server = FileTimerServer(path, "job", is_worker=lambda _: False)
        server.start(in_thread=False)
        try:
            os.write(server.fileno(), data)
            server.read()
            promise(not server.expire(), "a process that is no worker has missed a deadline")
        finally:
            server.stop()
    complaints = said.getvalue().splitlines()
    promise(len(complaints) <= COMPLAINTS_MAX, f"{len(complaints)} complaints are shown")
    for complaint in complaints:
        check_line(complaint.replace(path, ""), "a complaint", COMPLAINT_MAX_CHARS)


def _seeds() -> list[bytes]:
    requests = (
        FileTimerRequest(77, "scope", NOW + 5, 9),
        FileTimerRequest(77, "scope", -1),
        FileTimerRequest(1, "", float("inf"), 0),
        FileTimerRequest(2**31 - 1, "s" * 300, 0.5, 64),
        FileTimerRequest(4_000_000, "x", NOW, 15),
    )
    each = [request.to_json().encode() + b"\n" for request in requests]
    return [*each, b"".join(each), b"".join(each * 5), b"x" * 5_000 + b"\n" + each[0]]


TARGETS = (Target("watchdog", _run, _seeds, JSON_LINES, short_runs=100),)
