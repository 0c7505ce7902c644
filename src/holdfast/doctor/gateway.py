"""One request to etcd's HTTP gateway."""

from __future__ import annotations

import http.client
import io
import json
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.rendezvous.listener import TimedReader

if TYPE_CHECKING:
    import socket
    import ssl
    from typing import Any

GATEWAY_MAX_S = 2.0
"""How long each step of a request may take: connecting, and the whole answer."""

BODY_MAX_BYTES = 64 << 10

_DATE_RESOLUTION_S = 1.0


class Answer(NamedTuple):
    """The answer of a member to a request."""

    status: int = 0
    body: str = ""
    error: str = ""
    """Why there is no answer."""

    ahead_s: float | None = None
    """How far its clock is ahead of ours; None if it does not tell the time."""

    doubt_s: float = 0.0
    """The possible error of `ahead_s`, in both directions."""

    @property
    def fields(self) -> dict[str, Any]:
        try:
            read = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}


def ask(host: str, port: int, path: str, tls: ssl.SSLContext | None) -> Answer:
    """GET `path`. Proxies are not used: holdfast does not use them for etcd either."""
    connection = (
        http.client.HTTPConnection(host, port, timeout=GATEWAY_MAX_S)
        if tls is None
        else http.client.HTTPSConnection(host, port, timeout=GATEWAY_MAX_S, context=tls)
    )
    try:
        connection.connect()
        began_at, began = time.time(), time.monotonic()
        connection.request("GET", path)
        response = _response(connection.sock)
        took_s = time.monotonic() - began
        body = response.read(BODY_MAX_BYTES).decode("utf-8", "replace")
        ahead_s, doubt_s = clock_offset(response.getheader("Date"), began_at, took_s)
        return Answer(response.status, body, "", ahead_s, doubt_s)
    except (OSError, http.client.HTTPException) as error:
        return Answer(error=getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        connection.close()


def _response(connection: socket.socket) -> http.client.HTTPResponse:
    """The response, which may take `GATEWAY_MAX_S` with its body: the peer may send one byte at a time."""
    response = http.client.HTTPResponse(connection, method="GET")
    response.fp.close()
    response.fp = io.BufferedReader(TimedReader(connection, time.monotonic() + GATEWAY_MAX_S))
    response.begin()
    return response


def clock_offset(date: str | None, began_at: float, took_s: float) -> tuple[float | None, float]:
    """How far ahead a clock is that answered with `date`, and the possible error.

    The header has whole seconds, truncated, and was written some time between the request and the answer.
    """
    if not date:
        return None, 0.0
    try:
        said_at = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None, 0.0
    middle = said_at + _DATE_RESOLUTION_S / 2
    return middle - (began_at + took_s / 2), (_DATE_RESOLUTION_S + took_s) / 2
