"""Who may have how many of something that there is a limit of.

A source may have as many as are still free. So one alone gets half of all, and two that take turns get a third each. A
source that takes whatever it can get leaves half of what it found to those who come later.
"""

from __future__ import annotations


class Shares:
    """Counts what each source has. `taken` is what all of them have."""

    __slots__ = ("_limit", "_of", "taken")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: dict[str, int] = {}
        self.taken = 0

    def of(self, source: str) -> int:
        return self._of.get(source, 0)

    def has_room(self, source: str) -> bool:
        """Whether this source may have one more."""
        return self.of(source) < self._limit - self.taken

    def take(self, source: str) -> None:
        """One more for this source, whether there is room or not."""
        self._of[source] = self.of(source) + 1
        self.taken += 1

    def give_back(self, source: str) -> None:
        """One that it had taken."""
        self.taken -= 1
        self._of[source] -= 1
        if not self._of[source]:
            del self._of[source]
