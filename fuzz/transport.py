"""A transport without a network: what the code under test writes is kept, and it decides nothing by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class KeptTransport(asyncio.Transport):
    """As asyncio's own, as far as protocols can tell. A slow one has the protocol wait after each write."""

    def __init__(self, pause: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_over = False
        self.is_reading_paused = False
        self.is_full = False
        self._pause = pause

    def write(self, data: Any) -> None:
        if self.is_over:
            return
        self.written += data
        if self._pause is not None and not self.is_full:
            self.is_full = True
            self._pause()

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = bytes(self.written)
        self.written.clear()
        return taken

    def abort(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_over = True

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - asyncio's signature
        return default
