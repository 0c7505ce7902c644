"""Fair shares of a limited resource.

A source may have as many units as are still free. So a single source gets half of all, and two that take turns get a
third each. A greedy source leaves half of what it found to later ones.
"""

from __future__ import annotations


class Shares:
    """Counts the units of each source. `taken` is the total."""

    __slots__ = ("_limit", "_of", "taken")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: dict[str, int] = {}
        self.taken = 0

    def of(self, source: str) -> int:
        return self._of.get(source, 0)

    def has_room(self, source: str) -> bool:
        """Whether this source may have one more unit."""
        return self.of(source) < self._limit - self.taken

    def take(self, source: str) -> None:
        """Count one more unit for this source, whether there is room or not."""
        self._of[source] = self.of(source) + 1
        self.taken += 1

    def give_back(self, source: str) -> None:
        """Return one unit of this source."""
        self.taken -= 1
        self._of[source] -= 1
        if not self._of[source]:
            del self._of[source]
