"""The memory that a server holds for all its clients together, and which client is dropped when it is too much.

The server holds unread answers and changes, and incomplete requests. A body that goes to many clients exists once, so
it counts once. The client that has neither read nor sent anything for the longest time is dropped. Clients that read
stay, however much they ask for.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Client(Protocol):
    """What a server holds something for."""

    def drop(self) -> None:
        """End it, and discount what is held for it."""


C = TypeVar("C", bound=Client)

HELD_MAX_BYTES = 256 << 20
"""How much may be held for all clients. A thousand nodes that ask for a list of 1 MiB at once need almost nothing,
because it is the same list."""

MESSAGE_OVERHEAD_BYTES = 192
"""The cost of a waiting message beside its bytes: the objects around it, and its place in a queue."""


class Held(Generic[C]):
    """Counts the held bytes, and orders the clients that they are held for: the one idle for longest comes first."""

    def __init__(self) -> None:
        self.bytes = 0
        self._counts: dict[int, int] = {}
        self._waiting: dict[C, None] = {}

    def add(self, body: bytes) -> None:
        """Count a message that waits to be read."""
        number = id(body)  # unique while the body waits
        count = self._counts.get(number, 0)
        self._counts[number] = count + 1
        self.bytes += MESSAGE_OVERHEAD_BYTES if count else MESSAGE_OVERHEAD_BYTES + len(body)

    def remove(self, bodies: Iterable[bytes]) -> None:
        """Discount messages that were sent, or whose client is gone."""
        for body in bodies:
            number = id(body)
            count = self._counts.pop(number) - 1
            if count:
                self._counts[number] = count
            self.bytes -= MESSAGE_OVERHEAD_BYTES if count else MESSAGE_OVERHEAD_BYTES + len(body)

    def wait(self, client: C) -> None:
        """Note that something is held for this client now."""
        self._waiting.setdefault(client)

    def move(self, client: C, *, is_waiting: bool) -> None:
        """A client has read or sent something: move it to the end, or remove it if nothing is held for it."""
        self._waiting.pop(client, None)
        if is_waiting:
            self._waiting[client] = None

    def surplus(self) -> C | None:
        """The client to drop, if too much is held."""
        return next(iter(self._waiting), None) if self.bytes > HELD_MAX_BYTES else None

    def drop_surplus(self) -> None:
        """Drop clients until little enough is held."""
        while (client := self.surplus()) is not None:
            client.drop()
