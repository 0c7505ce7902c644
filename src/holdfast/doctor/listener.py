"""What listens at a port, if it is not what was expected there."""

from __future__ import annotations

import os
import socket
import ssl
from enum import StrEnum
from typing import NamedTuple

from holdfast.coordination.wire import UNPROVEN_FRAME_MAX_BYTES, Frames, ProtocolError, decode_greeting
from holdfast.errors.text import headline, visible
from holdfast.torchstore.wire import MAGIC, PING, U32, VALIDATE

ANSWER_MAX_S = 1.0
"""How long each question may go without an answer."""

_READ_BYTES = 4096
_SHOWN_CHARS = 60
_TLS_ALERT = b"\x15\x03"
_NEEDS_TLS = b"HTTP request to an HTTPS server"


class Kind(StrEnum):
    HOLDFAST = "holdfast"
    TORCH = "torch"
    """A server of torch's TCPStore, or one that speaks its protocol."""

    ETCD = "etcd"
    HTTP = "http"
    TLS = "tls"
    """Something that wants an encrypted connection. What is behind it is not seen."""

    OTHER = "other"
    SILENT = "silent"
    """It lets itself be connected to, and says nothing."""


class Listener(NamedTuple):
    kind: Kind
    said: str = ""
    """The beginning of what it says, in a form that can be shown."""


def identify(host: str, port: int) -> Listener:
    """Ask what listens, in several ways; each is harmless to those that are asked in another's."""
    for ask in (_hear, _ask_as_torch, _ask_as_http, _ask_as_tls):
        try:
            found = ask(host, port)
        except OSError:
            continue  # it hung up: a question of another kind may be more welcome
        if found is not None:
            return found
    return Listener(Kind.SILENT)


def _hear(host: str, port: int) -> Listener | None:
    """Who speaks first? holdfast's store does."""
    return _judged(_exchange(host, port, b""))


def _ask_as_torch(host: str, port: int) -> Listener | None:
    number = os.urandom(2).hex().encode()  # four bytes, none of which ends a line for those that read lines
    answer = _exchange(host, port, bytes([VALIDATE]) + U32.pack(MAGIC) + bytes([PING]) + number)
    if answer == number:
        return Listener(Kind.TORCH)
    found = _judged(answer)
    # What somebody else makes of it says less than the answer to a question that they understand.
    return found if found is not None and found.kind is not Kind.OTHER else None


def _ask_as_http(host: str, port: int) -> Listener | None:
    return _judged(_exchange(host, port, b"GET /version HTTP/1.0\r\n\r\n"))


def speaks_tls(host: str, port: int) -> bool:
    """Whether what listens there answers TLS, whoever it is and whatever it thinks of us."""
    try:
        return _ask_as_tls(host, port) is not None
    except OSError:
        return False


def _ask_as_tls(host: str, port: int) -> Listener | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is told to it
    with socket.create_connection((host, port), ANSWER_MAX_S) as connection:
        try:
            with context.wrap_socket(connection):
                return Listener(Kind.TLS)
        except ssl.SSLError as error:
            if "ALERT" in str(error).upper():  # it speaks TLS, and not with us
                return Listener(Kind.TLS)
            raise


def _exchange(host: str, port: int, question: bytes) -> bytes:
    with socket.create_connection((host, port), ANSWER_MAX_S) as connection:
        if question:
            connection.sendall(question)
        connection.settimeout(ANSWER_MAX_S)
        answer = b""
        try:
            while len(answer) < _READ_BYTES and (piece := connection.recv(_READ_BYTES)):
                answer += piece
                if not answer.startswith(b"HTTP/"):
                    break
        except TimeoutError:
            pass
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
    """Whether the store greets, or says in its place why it does not."""
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
