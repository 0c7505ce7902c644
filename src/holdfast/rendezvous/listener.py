"""What listens at a port, if it is not what was expected there."""

from __future__ import annotations

import io
import os
import socket
import ssl
import time
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.coordination.wire import UNPROVEN_FRAME_MAX_BYTES, Frames, ProtocolError, decode_greeting
from holdfast.errors.text import headline, visible
from holdfast.torchstore.wire import MAGIC, PING, U32, VALIDATE

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ANSWER_MAX_S = 1.0
"""How long each probe waits for a connection, and then for the whole answer."""

_READ_BYTES = 4096
_SHOWN_CHARS = 60
_TLS_ALERT = b"\x15\x03"
_NEEDS_TLS = b"HTTP request to an HTTPS server"


class Kind(StrEnum):
    HOLDFAST = "holdfast"
    TORCH = "torch"
    """torch's TCPStore server, or one that speaks its protocol."""

    ETCD = "etcd"
    HTTP = "http"
    TLS = "tls"
    """A server that requires TLS. What is behind it is unknown."""

    OTHER = "other"
    SILENT = "silent"
    """It accepts connections, and sends nothing."""


_STRANGERS = {Kind.TORCH: "torch's store", Kind.ETCD: "etcd", Kind.HTTP: "a web server"}


class Listener(NamedTuple):
    kind: Kind
    said: str = ""
    """The beginning of its answer, in printable form."""

    def stranger(self) -> str:
        """What it is, in words, if it cannot be holdfast's store; "" if it is or may be."""
        if self.kind is Kind.OTHER:
            return f"it says {self.said!r}"
        return _STRANGERS.get(self.kind, "")


class TimedReader(io.RawIOBase):
    """Reads from a connection until a deadline, however slowly the peer sends. A socket's timeout is for one read."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


def identify(host: str, port: int) -> Listener:
    """Identify what listens by several probes. Each probe is harmless to servers of another protocol."""
    for ask in (_hear, _ask_as_torch, _ask_as_http, _ask_as_tls):
        try:
            found = ask(host, port)
        except OSError:
            continue  # it closed the connection: another probe may work
        if found is not None:
            return found
    return Listener(Kind.SILENT)


def _hear(host: str, port: int) -> Listener | None:
    """Wait for the server to speak first: holdfast's store does."""
    return _judged(_exchange(host, port, b""))


def _ask_as_torch(host: str, port: int) -> Listener | None:
    number = os.urandom(2).hex().encode()  # four bytes without a line end, for servers that read lines
    answer = _exchange(host, port, bytes([VALIDATE]) + U32.pack(MAGIC) + bytes([PING]) + number)
    if answer == number:
        return Listener(Kind.TORCH)
    found = _judged(answer)
    # An unrecognised answer to this probe says less than the answer to a probe that the server understands.
    return found if found is not None and found.kind is not Kind.OTHER else None


def _ask_as_http(host: str, port: int) -> Listener | None:
    return _judged(_exchange(host, port, b"GET /version HTTP/1.0\r\n\r\n"))


def speaks_tls(host: str, port: int) -> bool:
    """Whether the server speaks TLS, even if it rejects us."""
    try:
        return _ask_as_tls(host, port) is not None
    except OSError:
        return False


def _ask_as_tls(host: str, port: int) -> Listener | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no secret is sent to it
    with socket.create_connection((host, port), ANSWER_MAX_S) as connection:
        try:
            with context.wrap_socket(connection):
                return Listener(Kind.TLS)
        except ssl.SSLError as error:
            if "ALERT" in str(error).upper():  # it speaks TLS, but rejects us
                return Listener(Kind.TLS)
            raise


def _exchange(host: str, port: int, question: bytes) -> bytes:
    with socket.create_connection((host, port), ANSWER_MAX_S) as connection:
        if question:
            connection.sendall(question)
        answer = b""
        with suppress(TimeoutError):
            reader = TimedReader(connection, time.monotonic() + ANSWER_MAX_S)
            while len(answer) < _READ_BYTES and (piece := reader.read(_READ_BYTES)):
                answer += piece
                if not answer.startswith(b"HTTP/"):
                    break
        return answer


def _judged(answer: bytes) -> Listener | None:
    if not answer:
        return None
    said = visible(headline(answer.decode("utf-8", "replace"), _SHOWN_CHARS))
    if answer.startswith(_TLS_ALERT) or _NEEDS_TLS in answer:
        return Listener(Kind.TLS)
    if _is_greeting(answer):
        return Listener(Kind.HOLDFAST)
    if answer.startswith(b"HTTP/"):
        return Listener(Kind.ETCD if b"etcdserver" in answer else Kind.HTTP, said)
    return Listener(Kind.OTHER, said)


def _is_greeting(answer: bytes) -> bool:
    """Whether the answer is the store's greeting, or its reason for not greeting."""
    frames = Frames(UNPROVEN_FRAME_MAX_BYTES)
    frames.feed(answer)
    try:
        taken = frames.take()
        if taken is None:
            return False
        decode_greeting(taken[1])
    except ProtocolError:
        return False
    return True
