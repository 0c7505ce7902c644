"""Warnings about clients. They stay few, however many clients there are."""

from __future__ import annotations

import time
from contextlib import suppress

from holdfast.logger import get_logger

TELL_EVERY_S = 60.0
"""How often a warning about the same thing is repeated at most."""

TOLD_MAX = 16
"""The most different things that are warned about in that time."""

_log = get_logger("torchstore")


class Teller:
    """Limits the rate of warnings."""

    def __init__(self) -> None:
        self._told: dict[object, float] = {}

    def tell(self, about: object, line: str, *words: object) -> None:
        """Log a warning, unless one about the same thing, or too many others, came recently."""
        now = time.monotonic()
        for old in [thing for thing, until in self._told.items() if until <= now]:
            del self._told[old]
        if about not in self._told and len(self._told) < TOLD_MAX:
            self._told[about] = now + TELL_EVERY_S
            with suppress(OSError, ImportError):  # logging imports modules, and there may be no descriptor left
                _log.warning(line, *words)
