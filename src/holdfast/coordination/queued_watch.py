"""A watch whose changes are brought to it and wait until they are read."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.coordination.errors import CompactedError
from holdfast.coordination.store import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Change, Changes

BACKLOG_MAX = 10_000
"""How many batches of changes a watch holds for a reader that does not read; beyond it, the reader has to read anew."""

BACKLOG_MAX_BYTES = 64 << 20
"""How many bytes they may take together: as much as the history of a store that an agent serves."""

CHANGE_BYTES = 384
"""What a change takes beside its key and value, as `keyspace` counts it, which clients do not import."""

WIDE_CHAR_BYTES = 8
"""What a character takes in a key that is not all ASCII, likewise."""


class QueuedWatch(Watch):
    """Engines bring changes with `deliver` and say with `fail` that there will be no more.

    `_end` is called once, when nothing more is wanted. What was delivered before a failure is read before it.
    """

    def __init__(self, backlog_max: int = BACKLOG_MAX, backlog_max_bytes: int = BACKLOG_MAX_BYTES) -> None:
        self._backlog: deque[tuple[Changes, int]] = deque()
        """The changes that wait, and how many bytes each batch takes."""

        self._backlog_max = backlog_max
        self._backlog_max_bytes = backlog_max_bytes
        self._backlog_bytes = 0
        self._failure: Exception | None = None
        self._is_wanted = True
        self._news = asyncio.Event()

    def deliver(self, changes: Changes) -> None:
        if not self._is_wanted:
            return
        size = sum(map(_bytes_of, changes.changes))
        is_full = len(self._backlog) >= self._backlog_max or self._backlog_bytes + size > self._backlog_max_bytes
        # One batch is let in by itself, whatever it takes: to read anew would bring as much.
        if is_full and self._backlog:
            self.fail(CompactedError("changes were forgotten before they were read"))
        else:
            self._backlog.append((changes, size))
            self._backlog_bytes += size
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
        changes, size = self._backlog.popleft()
        self._backlog_bytes -= size
        return changes

    def close(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0
        self._failure = None
        if self._is_wanted:
            self._stop()

    def _stop(self) -> None:
        self._is_wanted = False
        self._news.set()
        self._end()

    def _end(self) -> None:
        """For engines: whoever delivers can stop."""


def _bytes_of(change: Change) -> int:
    char_bytes = 1 if change.key.isascii() else WIDE_CHAR_BYTES
    return CHANGE_BYTES + char_bytes * len(change.key) + (0 if change.entry is None else len(change.entry.value))
