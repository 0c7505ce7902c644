"""The memory engine: for agents that share a process."""

from __future__ import annotations

import asyncio

from holdfast.coordination.errors import CompactedError, StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.queued_watch import BACKLOG_MAX, QueuedWatch
from holdfast.coordination.store import CoordinationStore, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.coordination.model import Entry, Lease, Outcome, Snapshot, Transaction


class MemoryStore(CoordinationStore):
    """A client of a key space in this process. Clients of the same key space share its data."""

    def __init__(self, keyspace: KeySpace | None = None, backlog_max: int = BACKLOG_MAX) -> None:
        self.keyspace = KeySpace() if keyspace is None else keyspace
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
        watch = _MemoryWatch(self, self._backlog_max)
        if self._closed:
            watch.fail(StoreUnavailableError("the store was closed"))
        else:
            self._watches.add(watch)
            watch.start(prefix, from_revision)
        return watch

    def forget(self, watch: _MemoryWatch) -> None:
        self._watches.discard(watch)

    async def close(self) -> None:
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        for watch in list(self._watches):
            watch.close()

    def _look_at_the_clock(self) -> float:
        """End expired leases, and set a timer for the next one."""
        if self._closed:
            raise StoreUnavailableError("the store was closed", is_gone=True)
        loop = asyncio.get_running_loop()
        now = loop.time()
        next_expiry = self.keyspace.expire(now)
        if next_expiry is not None and (self._expiry is None or not now < self._expiry.when() <= next_expiry):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = loop.call_at(next_expiry, self._look_at_the_clock)
        return now


class _MemoryWatch(QueuedWatch):
    def __init__(self, store: MemoryStore, backlog_max: int) -> None:
        super().__init__(backlog_max)
        self._store = store
        self._end_delivery: Callable[[], None] | None = None

    def start(self, prefix: str, from_revision: int) -> None:
        try:
            self._end_delivery = self._store.keyspace.watch(prefix, from_revision, self.deliver)
        except CompactedError as error:
            self.fail(error)
        if not self._is_wanted:  # the past was larger than its backlog
            self._end()

    def _end(self) -> None:
        self._store.forget(self)
        if self._end_delivery is not None:
            self._end_delivery()
