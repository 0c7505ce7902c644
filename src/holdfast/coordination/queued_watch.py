"""A watch whose changes are brought to it and wait until they are read."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.coordination.errors import CompactedError
from holdfast.coordination.store import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Changes

BACKLOG_MAX = 10_000
"""How many batches of changes a watch holds for a reader that does not read; beyond it, the reader has to read anew."""


class QueuedWatch(Watch):
    """Engines bring changes with `deliver` and say with `fail` that there will be no more.

    `_end` is called once, when nothing more is wanted. What was delivered before a failure is read before it.
    """

    def __init__(self, backlog_max: int = BACKLOG_MAX) -> None:
        self._backlog: deque[Changes] = deque()
        self._backlog_max = backlog_max
        self._failure: Exception | None = None
        self._is_wanted = True
        self._news = asyncio.Event()

    def deliver(self, changes: Changes) -> None:
        if not self._is_wanted:
            return
        if len(self._backlog) >= self._backlog_max:
            self.fail(CompactedError("changes were forgotten before they were read"))
        else:
            self._backlog.append(changes)
            self._news.set()

    def fail(self, error: Exception) -> None:
        if self._is_wanted:
            self._failure = error
            self._stop()

    async def __anext__(self) -> Changes:
        while not self._backlog:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if not self._is_wanted:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._backlog.popleft()

    def close(self) -> None:
        self._backlog.clear()
        self._failure = None
        if self._is_wanted:
            self._stop()

    def _stop(self) -> None:
        self._is_wanted = False
        self._news.set()
        self._end()

    def _end(self) -> None:
        """For engines: whoever delivers can stop."""
