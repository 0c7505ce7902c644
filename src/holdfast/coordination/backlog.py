"""What a server holds for one client: messages that it has not read yet, and input that is not processed yet."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from holdfast.coordination.held import MESSAGE_OVERHEAD_BYTES, Client
from holdfast.coordination.wire import HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.held import Held

C = TypeVar("C", bound=Client)

PIECE_BYTES = 64 << 10
"""How much is passed to the transport at once. For each connection, it copies what the kernel does not take."""


class Backlog(Generic[C]):
    """The backlog of one client, counted in `held`.

    The client is an argument and not an attribute: a cycle would keep ended connections until the garbage collector
    runs.
    """

    def __init__(self, held: Held[C]) -> None:
        self.unsent_bytes = 0
        """The size of the messages that wait."""
        self._held = held
        self._outbox: deque[tuple[int, bytes]] = deque()
        self._written_bytes = 0
        self._incoming_bytes = 0

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    def put(self, client: C, channel: int, body: bytes) -> None:
        """Add a message."""
        self._outbox.append((channel, body))
        self.unsent_bytes += len(body) + MESSAGE_OVERHEAD_BYTES
        self._held.add(body)
        self._held.wait(client)

    def next_piece(self) -> bytes | memoryview:
        """Take the next piece of what is to be written, with the header before the first piece of a message."""
        channel, body = self._outbox[0]
        piece = memoryview(body)[self._written_bytes : self._written_bytes + PIECE_BYTES]
        is_first = not self._written_bytes
        self.unsent_bytes -= len(piece)
        self._written_bytes += len(piece)
        if self._written_bytes == len(body):
            self._outbox.popleft()
            self._held.remove([body])
            self.unsent_bytes -= MESSAGE_OVERHEAD_BYTES
            self._written_bytes = 0
        return HEADER.pack(len(body), channel) + piece if is_first else piece

    def moved(self, client: C) -> None:
        """The client has read or sent something."""
        self._held.move(client, is_waiting=bool(self._outbox or self._incoming_bytes))

    def count_incoming(self, client: C, size: int) -> None:
        """Count unprocessed input: an incomplete request, or requests that wait for the outbox."""
        if size != self._incoming_bytes:
            self._held.bytes += size - self._incoming_bytes
            self._incoming_bytes = size
            self.moved(client)
            self._held.drop_surplus()

    def let_go(self, client: C) -> None:
        """Hold nothing more for the client."""
        self._held.bytes -= self._incoming_bytes
        self._held.remove(body for _, body in self._outbox)
        self._held.move(client, is_waiting=False)
        self._outbox.clear()
        self.unsent_bytes = self._written_bytes = self._incoming_bytes = 0
