"""One client's connection. No request is read while replies wait to be sent.

A client's turn is bounded in bytes and in time. Then the other clients have theirs.
"""

from __future__ import annotations

import time
from _socket import SHUT_RDWR
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT

from holdfast.torchstore.requests import Requests
from holdfast.torchstore.waits import Peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from select import epoll
    from typing import Any

    from holdfast.socket_owners import Address
    from holdfast.torchstore.keyspace import KeySpace
    from holdfast.torchstore.wire import Pieces

READ_BYTES = 16 << 10
"""How much is read from a client at once."""

READ_MAX_BYTES = 1 << 20
"""How much of a longer request is read at once. The other clients wait while it is copied, about 0.2 ms."""

REPLIES_MAX = 256
"""After this many replies in a turn, they are sent before the next request is carried out."""

SEND_MAX_BYTES = 4 << 20
"""How much is sent to a client in one turn, however fast it reads."""

PARTS_MAX = 8
"""How many parts of a long reply are sent in one turn. Writing one takes about 0.2 ms."""

TURN_MAX_S = 0.005
"""The length of a turn of a client that has sent many requests at once. The longest single request, which names 131,072
keys, takes about 50 ms.
"""

PIECES_MAX = 512
"""How many pieces are passed to the kernel at once. Its limit is 1024."""


class Connection(Peer):
    """A non-blocking socket. The loop calls `serve` when there is something to do.

    Its methods raise OSError if the connection is broken, and ProtocolError for an invalid request.
    """

    __slots__ = (
        "_epoll",
        "_has_more",
        "_is_blocked",
        "_keyspace",
        "_memory",
        "_pinned",
        "_received_bytes",
        "_recv",
        "_requests",
        "_send",
        "_socket",
        "fd",
        "is_open",
        "name",
        "since",
    )

    def __init__(self, connected: socket, name: Address, since: float, keyspace: KeySpace, epoll: epoll) -> None:
        """`name` (the address) and `since` (the time of its arrival) are for the loop."""
        super().__init__()
        self.fd = connected.fileno()
        self.name = name
        self.since = since
        self.is_open = True
        self._has_more = False
        self._socket = connected
        self._recv = connected.recv
        self._send = connected.send
        self._keyspace = keyspace
        self._memory = keyspace.memory
        self._received_bytes = 0
        self._pinned: list[bytes] = []
        self._epoll = epoll
        self._requests = Requests()
        self._is_blocked = False
        epoll.register(self.fd, EPOLLIN)

    @property
    def is_greeted(self) -> bool:
        return self._requests.is_greeted

    @property
    def is_busy(self) -> bool:
        """Whether it has requests left, so that it needs another turn even if the client sends nothing more."""
        return self._has_more and not self._is_blocked

    def hang_up(self) -> None:
        """End the connection for the client, even if a newly forked child has a copy of the descriptor."""
        with suppress(OSError):  # the client has closed it already
            self._socket.shutdown(SHUT_RDWR)

    def close(self) -> None:
        self.is_open = False
        self._has_more = False
        self._keyspace.leave(self)
        self._memory.unpin(self._pinned)
        self._memory.take(-self._received_bytes)
        self._received_bytes = 0
        self.out.clear()
        self.strings = None
        self._socket.close()  # this removes it from the epoll set

    def serve(self) -> bool:
        """Do what can be done now. Returns False if the client has left."""
        if self._is_blocked:
            if self.flush():
                self._work()
            return True
        if self._has_more:  # the loop gives it another turn before more is read
            return True
        missing = self._requests.missing_bytes
        try:
            data = self._recv(READ_BYTES if missing <= READ_BYTES else min(missing, READ_MAX_BYTES))
        except (BlockingIOError, InterruptedError):
            return True  # the event was for an earlier connection with the same descriptor
        if not data:
            return False
        self._requests.feed(data)
        self._work()
        return True

    def go_on(self) -> None:
        """Take another turn, if it is busy."""
        if self.is_busy:
            self._work()

    def _work(self) -> None:
        """Carry out received requests while replies can be sent and the turn lasts."""
        requests = self._requests
        take = requests.take
        operations = self._keyspace.operations
        out = self.out
        self._has_more = False
        until = time.monotonic() + TURN_MAX_S
        try:
            while (request := take()) is not None:
                operations[request[0]](self, *request[1])
                if (len(out) >= REPLIES_MAX or self.strings is not None) and not self.flush():
                    return
                if time.monotonic() >= until and requests.has_more:
                    self._has_more = True
                    return
        finally:
            if out and not self._is_blocked:
                self.flush()
            held = requests.held_bytes
            if held != self._received_bytes:
                self._count_received(held)

    def _count_received(self, held: int) -> None:
        self._memory.take(held - self._received_bytes)
        self._received_bytes = held

    def tell(self) -> None:
        """Send replies that other clients caused. If earlier replies still wait, they are sent with those."""
        if not self._is_blocked:
            self.flush()

    def flush(self) -> bool:
        """Send as much as possible. Returns whether that was all; until it is, nothing is read."""
        is_done = self._send_out()
        if is_done is self._is_blocked:
            self._is_blocked = not is_done
            self._epoll.modify(self.fd, EPOLLIN if is_done else EPOLLOUT)
            if is_done:
                self._memory.unpin(self._pinned)
            else:
                self._pin()
        return is_done

    def _pin(self) -> None:
        """Count the strings that wait to be sent: they stay in memory until then, even if their keys are deleted."""
        # A view is the rest of a string that was sent in part. It keeps the whole string in memory.
        strings: list[Any] = [piece.obj if isinstance(piece, memoryview) else piece for piece in self.out]
        if self.strings is not None:
            strings += self.strings.rest()
        self._memory.pin(strings, self._pinned)

    def _send_out(self) -> bool:
        out = self.out
        total = parts = 0
        try:
            while total < SEND_MAX_BYTES:
                if self.strings is not None and len(out) < PIECES_MAX:
                    if parts >= PARTS_MAX:
                        return False
                    self.put_part()
                    parts += 1
                if not out:
                    return True
                if len(out) == 1:
                    sent = self._send(out[0])
                    if sent == len(out[0]):
                        out.clear()
                        if self.strings is None:
                            return True
                        continue
                else:
                    sent = self._socket.sendmsg(out[:PIECES_MAX])
                _drop(out, sent)
                total += sent
        except (BlockingIOError, InterruptedError):
            return False
        return not out and self.strings is None


def _drop(out: Pieces, sent: int) -> None:
    """Remove the first `sent` bytes from `out`."""
    done = 0
    for piece in out:
        if len(piece) > sent:
            break
        sent -= len(piece)
        done += 1
    del out[:done]
    if sent:
        # A view, so that the rest of a large value is not copied after each part.
        out[0] = memoryview(out[0])[sent:]
