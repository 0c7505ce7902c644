"""How much memory the store uses for its clients, all together, and where that ends."""

from __future__ import annotations

from holdfast.torchstore.wire import LimitError

HELD_MAX_BYTES = 2 << 30
"""How much the store holds for all its clients: keys, values and queues, waits, requests in the making, and replies
that clients do not read. torch's server has no limit. The client whose request would be too much is dropped.
"""

STRING_COST_BYTES = 64
"""What a string costs beside its bytes."""

KEY_COST_BYTES = 256
"""What a key costs beside its bytes and those of its value, or of the clients that wait for it."""


class Memory:
    """A count of bytes. What would be too much is a LimitError, and is not counted."""

    __slots__ = ("_pins", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._pins: dict[int, int] = {}

    def take(self, size: int) -> None:
        """Use so many bytes more; a negative number gives some back."""
        self.held_bytes += size
        if size > 0 and self.held_bytes > HELD_MAX_BYTES:
            self.held_bytes -= size
            raise _too_much()

    def pin(self, strings: list[bytes], pinned: list[bytes]) -> None:
        """Strings that clients are still to be sent. They stay, also if the store has them no longer.

        One that many clients wait for is counted once. `pinned` gets what was counted, for `unpin`.
        """
        pins = self._pins
        size = 0
        for string in strings:
            number = id(string)  # it is this one's alone while somebody holds it
            count = pins.get(number, 0)
            size += STRING_COST_BYTES if count else STRING_COST_BYTES + len(string)
            pins[number] = count + 1
        pinned += strings
        self.held_bytes += size
        if self.held_bytes > HELD_MAX_BYTES:
            self.unpin(pinned)
            raise _too_much()

    def unpin(self, pinned: list[bytes]) -> None:
        """These were sent, or their client is gone."""
        pins = self._pins
        for string in pinned:
            number = id(string)
            count = pins[number] - 1
            if count:
                pins[number] = count
                self.held_bytes -= STRING_COST_BYTES
            else:
                del pins[number]
                self.held_bytes -= STRING_COST_BYTES + len(string)
        pinned.clear()


def _too_much() -> LimitError:
    return LimitError(f"the store would hold more than {HELD_MAX_BYTES >> 20} MiB for its clients")
