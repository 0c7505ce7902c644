"""Lines for people about what clients did: few, however many clients there are."""

from __future__ import annotations

import time
from contextlib import suppress

from holdfast.logger import get_logger

TELL_EVERY_S = 60.0
"""How often a line tells of the same thing."""

TOLD_MAX = 16
"""Of how many things lines tell in that time."""

_log = get_logger("torchstore")


class Teller:
    """Tells people of each thing once in a while."""

    def __init__(self) -> None:
        self._told: dict[object, float] = {}

    def tell(self, about: object, line: str, *words: object) -> None:
        """A warning, unless there was one about the same, or about too much, not long ago."""
        now = time.monotonic()
        for old in [thing for thing, until in self._told.items() if until <= now]:
            del self._told[old]
        if about not in self._told and len(self._told) < TOLD_MAX:
            self._told[about] = now + TELL_EVERY_S
            with suppress(OSError, ImportError):  # there may be no descriptor left to import what messages need
                _log.warning(line, *words)
