"""What a server holds for all its clients together, and who has to go when that is too much.

It holds answers and changes that were not read yet, and requests that are not all there. A body that goes to many is
there once, so it counts once. The client that goes is the one that has neither read nor sent anything for longest.
Those that read stay, however much they ask for.
"""

from __future__ import annotations

from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

C = TypeVar("C")

HELD_MAX_BYTES = 256 << 20
"""How much may be held for all clients. A thousand nodes that ask for a list of 1 MiB at once need nearly nothing,
since it is the same list."""

MESSAGE_OVERHEAD_BYTES = 192
"""What a message that waits costs beside its bytes: the objects around it, and its place in a queue."""


class Held(Generic[C]):
    """Counts what is held, and knows the clients that it is held for: first the one that did nothing for longest."""

    def __init__(self) -> None:
        self.bytes = 0
        self._counts: dict[int, int] = {}
        self._waiting: dict[C, None] = {}

    def add(self, body: bytes) -> None:
        """A message that waits to be read."""
        number = id(body)  # it is this one's alone while it waits
        count = self._counts.get(number, 0)
        self._counts[number] = count + 1
        self.bytes += MESSAGE_OVERHEAD_BYTES if count else MESSAGE_OVERHEAD_BYTES + len(body)

    def remove(self, bodies: Iterable[bytes]) -> None:
        """These were sent, or their client is gone."""
        for body in bodies:
            number = id(body)
            count = self._counts.pop(number) - 1
            if count:
                self._counts[number] = count
            self.bytes -= MESSAGE_OVERHEAD_BYTES if count else MESSAGE_OVERHEAD_BYTES + len(body)

    def wait(self, client: C) -> None:
        """Something is held for this client now."""
        self._waiting.setdefault(client)

    def move(self, client: C, *, is_waiting: bool) -> None:
        """A client has read or sent something. It is the last that has to go, if anything is held for it still."""
        self._waiting.pop(client, None)
        if is_waiting:
            self._waiting[client] = None

    def surplus(self) -> C | None:
        """The one that goes, if it is too much."""
        return next(iter(self._waiting), None) if self.bytes > HELD_MAX_BYTES else None
