"""A watch with a queue of changes that were delivered but not read."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.coordination.errors import CompactedError
from holdfast.coordination.store import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Change, Changes

BACKLOG_MAX = 10_000
"""The number of batches that a watch holds for a slow reader. Beyond it, the reader must start with a snapshot."""

BACKLOG_MAX_BYTES = 64 << 20
"""The size limit of the held batches: the same as the history of an embedded store."""

CHANGE_BYTES = 384
"""The cost of a change beside its key and value, as in `keyspace`, which clients do not import."""

WIDE_CHAR_BYTES = 8
"""The cost of a character in a key that is not all ASCII, as in `keyspace`."""


class QueuedWatch(Watch):
    """Engines pass changes to `deliver`, and end the watch with `fail`.

    `_end` is called once, when no more changes are wanted. Changes that were delivered before a failure are read first.
    """

    def __init__(self, backlog_max: int = BACKLOG_MAX, backlog_max_bytes: int = BACKLOG_MAX_BYTES) -> None:
        self._backlog: deque[tuple[Changes, int]] = deque()
        """The unread batches, and the size of each."""

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
        # A single batch always fits, whatever its size: a new snapshot would be as large.
        if is_full and self._backlog:
            self.fail(CompactedError("changes were dropped before they were read"))
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
        """Called once when no more changes are wanted: engines stop delivering."""


def _bytes_of(change: Change) -> int:
    char_bytes = 1 if change.key.isascii() else WIDE_CHAR_BYTES
    return CHANGE_BYTES + char_bytes * len(change.key) + (0 if change.entry is None else len(change.entry.value))
