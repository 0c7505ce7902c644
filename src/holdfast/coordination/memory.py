"""The memory engine: for agents that share a process."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.coordination.errors import CompactedError, StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.store import CoordinationStore, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Changes, Entry, Lease, Outcome, Snapshot, Transaction

BACKLOG_MAX = 10_000
"""How many batches of changes a watch holds for a reader that does not read; beyond it, the reader has to read anew."""


class MemoryStore(CoordinationStore):
    """A client of a key space in this process. Several of them share one by being given the same."""

    def __init__(self, keyspace: KeySpace | None = None, backlog_max: int = BACKLOG_MAX) -> None:
        self.keyspace = keyspace or KeySpace()
        self._backlog_max = backlog_max
        self._expiry: asyncio.TimerHandle | None = None
        self._watches: set[_MemoryWatch] = set()
        self._closed = False

    async def get(self, key: str) -> Entry | None:
        self._look_at_the_clock()
        return self.keyspace.get(key)

    async def get_prefix(self, prefix: str) -> Snapshot:
        self._look_at_the_clock()
        return self.keyspace.get_prefix(prefix)

    async def transact(self, transaction: Transaction) -> Outcome:
        self._look_at_the_clock()
        return self.keyspace.transact(transaction)

    async def grant(self, ttl_s: float) -> Lease:
        lease = self.keyspace.grant(ttl_s, self._look_at_the_clock())
        self._look_at_the_clock()
        return lease

    async def keep_alive(self, lease_id: int) -> float:
        return self.keyspace.keep_alive(lease_id, self._look_at_the_clock())

    async def revoke(self, lease_id: int) -> None:
        self._look_at_the_clock()
        self.keyspace.revoke(lease_id)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        watch = _MemoryWatch(self.keyspace, prefix, from_revision, self._backlog_max)
        self._watches.add(watch)
        return watch

    async def close(self) -> None:
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        for watch in self._watches:
            watch.close()

    def _look_at_the_clock(self) -> float:
        """End what has run out, and be woken for what runs out next."""
        if self._closed:
            raise StoreUnavailableError("the store was closed")
        loop = asyncio.get_running_loop()
        now = loop.time()
        next_expiry = self.keyspace.expire(now)
        if next_expiry is not None and (self._expiry is None or not now < self._expiry.when() <= next_expiry):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = loop.call_at(next_expiry, self._look_at_the_clock)
        return now


class _MemoryWatch(Watch):
    def __init__(self, keyspace: KeySpace, prefix: str, from_revision: int, backlog_max: int) -> None:
        self._backlog: deque[Changes] = deque()
        self._backlog_max = backlog_max
        self._is_behind = False
        self._closed = False
        self._news = asyncio.Event()
        try:
            self._end = keyspace.watch(prefix, from_revision, self._deliver)
        except CompactedError:
            self._is_behind = True
            self._end = _nothing

    def _deliver(self, changes: Changes) -> None:
        if len(self._backlog) >= self._backlog_max:
            self._is_behind = True
            self._end()
        else:
            self._backlog.append(changes)
        self._news.set()

    async def __anext__(self) -> Changes:
        while not self._backlog:
            if self._closed:
                raise StopAsyncIteration
            if self._is_behind:
                self.close()
                raise CompactedError("changes were forgotten before they were read")
            self._news.clear()
            await self._news.wait()
        return self._backlog.popleft()

    def close(self) -> None:
        self._closed = True
        self._end()
        self._news.set()


def _nothing() -> None:
    pass
