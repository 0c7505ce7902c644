"""Asks the kernel about sockets, routes and addresses through netlink, one question at a time."""

from __future__ import annotations

import os
from _socket import AF_NETLINK, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW, socket
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROUTE = 0
SOCK_DIAG = 4
"""The netlink families that `Kernel` accepts."""

ANSWER_MAX_BYTES = 4 << 10
"""The maximum length of one answer. One about a socket or a route takes a few hundred bytes."""

LIST_MAX_BYTES = 64 << 10
"""How much of a list is read at once. The kernel sends pieces of at most half this size."""

_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3

_HEADER = Struct("=IHHII")
_CODE = Struct("=i")
_ATTRIBUTE = Struct("=HH")


class Kernel:
    """A netlink socket of one family. Raises OSError if the kernel or a sandbox does not offer it."""

    def __init__(self, family: int) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family)
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, kind: int, question: bytes) -> bytes:
        """The answer to a question that has a single one.

        Raises:
            OSError: the kernel has no answer, or no memory for it.
        """
        self._send(kind, question, _REQUEST)
        while True:
            data = self._socket.recv(ANSWER_MAX_BYTES, MSG_DONTWAIT)
            for what, body in self._messages(data):
                if what != _DONE:
                    return body

    def ask_all(self, kind: int, question: bytes) -> Iterator[bytes]:
        """The answers to a question that may have several. Raises OSError as `ask` does."""
        self._send(kind, question, _REQUEST | _DUMP)
        while True:
            for what, body in self._messages(self._socket.recv(LIST_MAX_BYTES, MSG_DONTWAIT)):
                if what == _DONE:
                    return
                yield body

    def _send(self, kind: int, question: bytes, flags: int) -> None:
        """Send a question. The kernel answers before this returns, so the answer can be read without waiting."""
        self._number = self._number + 1 & 0xFFFFFFFF
        self._socket.sendto(_HEADER.pack(_HEADER.size + len(question), kind, flags, self._number, 0) + question, (0, 0))

    def _messages(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + _HEADER.size <= len(data):
            size, what, _, number, _ = _HEADER.unpack_from(data, at)
            body = data[at + _HEADER.size : at + size]
            at += max(size + 3 & ~3, _HEADER.size)
            if number != self._number:
                continue  # the rest of an earlier answer that was not read to its end
            if what == _ERROR:
                code = -_CODE.unpack_from(body)[0]
                raise OSError(code, os.strerror(code))
            yield what, body


def attributes(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """The attributes of an answer, as kinds and values. They follow its fixed part, from `at` on."""
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind, data[at + _ATTRIBUTE.size : at + size]
        at += max(size + 3 & ~3, _ATTRIBUTE.size)


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute for a question. The length of `value` must be a multiple of 4 bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value
