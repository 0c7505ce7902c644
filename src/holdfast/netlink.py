"""Questions to the kernel about sockets, routes and addresses (netlink): one at a time, answered at once."""

from __future__ import annotations

import os
from _socket import AF_NETLINK, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW, socket
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROUTE = 0
SOCK_DIAG = 4
"""The families of questions, as `Kernel` takes them."""

ANSWER_MAX_BYTES = 4 << 10
"""How long one answer may be. What it tells of a socket or a route takes some hundred bytes."""

LIST_MAX_BYTES = 64 << 10
"""How much is read at once of a list; the kernel sends at most half of it in one piece."""

_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3

_HEADER = Struct("=IHHII")
_CODE = Struct("=i")
_ATTRIBUTE = Struct("=HH")


class Kernel:
    """A socket on which the kernel answers one family of questions. OSError if the kernel, or a sandbox, has none."""

    def __init__(self, family: int) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family)
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, kind: int, question: bytes) -> bytes:
        """The answer to a question that has one.

        Raises:
            OSError: the kernel says that there is none, or has no memory for it.
        """
        self._send(kind, question, _REQUEST)
        while True:
            data = self._socket.recv(ANSWER_MAX_BYTES, MSG_DONTWAIT)
            for what, body in self._messages(data):
                if what != _DONE:
                    return body

    def ask_all(self, kind: int, question: bytes) -> Iterator[bytes]:
        """The answers to a question that has any number of them. OSError as above."""
        self._send(kind, question, _REQUEST | _DUMP)
        while True:
            for what, body in self._messages(self._socket.recv(LIST_MAX_BYTES, MSG_DONTWAIT)):
                if what == _DONE:
                    return
                yield body

    def _send(self, kind: int, question: bytes, flags: int) -> None:
        """When it returns, the kernel has answered: nobody has to wait."""
        self._number = self._number + 1 & 0xFFFFFFFF
        self._socket.sendto(_HEADER.pack(_HEADER.size + len(question), kind, flags, self._number, 0) + question, (0, 0))

    def _messages(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + _HEADER.size <= len(data):
            size, what, _, number, _ = _HEADER.unpack_from(data, at)
            body = data[at + _HEADER.size : at + size]
            at += max(size + 3 & ~3, _HEADER.size)
            if number != self._number:
                continue  # of an earlier answer that nobody read to its end
            if what == _ERROR:
                code = -_CODE.unpack_from(body)[0]
                raise OSError(code, os.strerror(code))
            yield what, body


def attributes(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """What follows the fixed part of an answer, from `at` on: kinds and values."""
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind, data[at + _ATTRIBUTE.size : at + size]
        at += max(size + 3 & ~3, _ATTRIBUTE.size)


def attribute(kind: int, value: bytes) -> bytes:
    """One of them, for a question. `value` fills whole words."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value
