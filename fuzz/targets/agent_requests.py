"""The pipe through which people ask a running agent.

Promises: nothing is raised. A request has the name of a file and of nothing else, and there are at most eight at a
time. None is lost, and they are the same however the bytes are cut.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from fuzz.oracles import pieces, promise
from fuzz.shapes import LINES
from fuzz.target import Target
from holdfast.agent.requests import READ_MAX_BYTES, REQUESTS_MAX, STACKS, Requests

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_MAX_CHARS = 64


def _asked(parts: Iterable[bytes]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        requests = Requests(os.path.join(directory, "requests"))
        try:
            for part in parts:
                os.write(requests.fileno(), part)
                asked = requests.read()
                while asked:
                    promise(len(asked) <= REQUESTS_MAX, f"{len(asked)} requests at a time")
                    found += [(request.kind, request.id) for request in asked]
                    asked = requests.read() if requests.has_waiting else []
        finally:
            requests.close()
        promise(not os.listdir(directory), "a pipe is left behind")
    return found


def _run(data: bytes) -> None:
    data = data[:READ_MAX_BYTES]
    found = _asked([data] if data else [])
    for kind, name in found:
        promise(kind == STACKS, f"a request of another kind: {kind}")
        is_name = name.replace("-", "").replace("_", "").isalnum() or not name.strip("-_")
        promise(name.isascii() and is_name and len(name) <= NAME_MAX_CHARS, f"not the name of a file: {name!r}")
    promise(found == _asked(pieces(data)), "the requests depend on how the bytes are cut")


def _seeds() -> list[bytes]:
    return [b"stacks 20260131T235959-0a1b2c3d\n", b"stacks a\nstacks b\n", b"stacks " + b"x" * 64 + b"\n", b"stacks \n"]


TARGETS = (Target("agent-requests", _run, _seeds, LINES, short_runs=100),)
