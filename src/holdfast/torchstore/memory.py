"""The memory that the store uses for all its clients together, and its limit."""

from __future__ import annotations

from holdfast.torchstore.wire import LimitError

HELD_MAX_BYTES = 2 << 30
"""The most memory that the store uses for all its clients: keys, values, queues, waits, incomplete requests, and unread
replies. torch's server has no limit. A client whose request would exceed it is dropped.
"""

STRING_COST_BYTES = 64
"""The cost of a string in addition to its bytes."""

KEY_COST_BYTES = 256
"""The cost of a key in addition to its bytes and its value, or of the clients that wait for it."""


class Memory:
    """A count of bytes. Bytes that would exceed the limit raise LimitError and are not counted."""

    __slots__ = ("_pins", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._pins: dict[int, int] = {}

    def take(self, size: int) -> None:
        """Count `size` more bytes. A negative number gives bytes back."""
        self.held_bytes += size
        if size > 0 and self.held_bytes > HELD_MAX_BYTES:
            self.held_bytes -= size
            raise _too_much()

    def pin(self, strings: list[bytes], pinned: list[bytes]) -> None:
        """Count strings that wait to be sent to clients. They stay in memory even if the store drops them.

        A string that waits for many clients is counted once. `pinned` gets the counted strings, for `unpin`.
        """
        pins = self._pins
        size = 0
        for string in strings:
            number = id(string)  # unique while something refers to the string
            count = pins.get(number, 0)
            size += STRING_COST_BYTES if count else STRING_COST_BYTES + len(string)
            pins[number] = count + 1
        pinned += strings
        self.held_bytes += size
        if self.held_bytes > HELD_MAX_BYTES:
            self.unpin(pinned)
            raise _too_much()

    def unpin(self, pinned: list[bytes]) -> None:
        """Stop counting strings that were sent, or whose client is gone."""
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
