"""The health check: any bytes as an HTTP request, to a server that really listens.

Promises: an answer is short HTTP of a known status. Whatever a client sends, the server answers the next one.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import time

from fuzz.oracles import pieces, promise
from fuzz.shapes import BYTES
from fuzz.target import Target
from holdfast.agent.health import REQUEST_MAX_BYTES, HealthCheckServer

ANSWER_MAX_S = 20.0
"""How long an answer may take on a busy machine."""

ANSWER_MAX_BYTES = 2_048

TRIES = 5
"""How often an honest client asks. It may stand still for longer than it has time to ask, on a busy machine."""

HUNG_UP = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
"""How the system says that the server has not read all, and has no use for the rest."""

STATUSES = (200, 400, 405, 413, 431, 501, 503)

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) [A-Za-z ]+\r\n")


def _ask(port: int, data: bytes) -> bytes:
    """The answer; nothing if the server hangs up."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), ANSWER_MAX_S) as connection:
        try:
            for part in pieces(data):
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            while len(answer) <= ANSWER_MAX_BYTES and (piece := connection.recv(4096)):
                answer += piece
        except OSError as error:
            if error.errno not in HUNG_UP:
                raise
    return answer


def _run(data: bytes) -> None:
    server = HealthCheckServer(time.time, 0, 60.0, host="127.0.0.1")
    server.start()
    try:
        answer = _ask(server.port, data[: 2 * REQUEST_MAX_BYTES])
        promise(len(answer) <= ANSWER_MAX_BYTES, "the answer is too long")
        if answer:
            status = _STATUS.match(answer)
            promise(status is not None and int(status[1]) in STATUSES, f"no HTTP: {answer[:100]!r}")
            promise(b"\r\n\r\n" in answer, "the answer has no end of its head")
        usual = next(filter(None, (_ask(server.port, b"GET / HTTP/1.0\r\n\r\n") for _ in range(TRIES))), b"")
        promise(usual, "the next one has no answer")
        promise(json.loads(usual.partition(b"\r\n\r\n")[2])["healthy"], "the agent is not healthy any more")
    finally:
        server.stop()


def _seeds() -> list[bytes]:
    return [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: node0\r\nConnection: keep-alive\r\n\r\n",
        b"HEAD / HTTP/1.1\n\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 9_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ]


TARGETS = (Target("health", _run, _seeds, BYTES, short_runs=40),)
