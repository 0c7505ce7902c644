"""The store's whole behaviour, without I/O: time is an argument, and watchers are callbacks.

The memory engine, the embedded server and the simulator run this same class.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left, insort
from collections import deque
from heapq import heapify, heappop, heappush
from itertools import islice

from holdfast.coordination.errors import CompactedError, LeaseLostError, NoRoomError
from holdfast.coordination.model import (
    NO_LEASE,
    STORE_ID_BYTES,
    Change,
    Changes,
    Created,
    Delete,
    Entry,
    Lease,
    Outcome,
    Put,
    Snapshot,
    check,
    shown,
)
from holdfast.coordination.shares import Shares

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from holdfast.coordination.model import Compare, Operation, Transaction

    Deliver: TypeAlias = Callable[[Changes], None]

HISTORY_MAX_REVISIONS = 10_000
"""The number of revisions that are remembered for watches that start in the past."""

HISTORY_MAX_BYTES = 64 << 20
"""The size limit of the remembered changes: keys, values and `CHANGE_OVERHEAD_BYTES` each."""

CHANGE_OVERHEAD_BYTES = 384
"""The cost of a remembered change beside its key and value. Measured as the growth of a process (CPython 3.11, 64 bits)
with 300,000 revisions of one short entry each: 330 bytes per change, and 218 if a revision has a hundred of them."""

ENTRIES_MAX_BYTES = 256 << 20
"""The size limit of all entries: keys, values and `ENTRY_OVERHEAD_BYTES` each. 10,000 nodes with records of 4 KiB need
45 MiB."""

ENTRY_OVERHEAD_BYTES = 400
"""The cost of an entry beside its key and value. Measured as the growth of a process (CPython 3.11, 64 bits) with up to
700,000 short entries: 220 to 226 bytes each, up to 317 under one lease, and 367 under leases with five keys each, where
tables have just grown."""

WIDE_CHAR_BYTES = 8
"""The cost of a character in a key that is not all ASCII: one such character makes all of them take four bytes, and
Python keeps the key in UTF-8, too."""

LEASES_MAX = 100_000
"""The number of leases, including those whose holder is gone and that have yet to expire. 10,000 nodes have one or two
each. One source may have as many as are still free, so at most half of them."""

LEASE_BYTES = 640
"""The cost of a lease. Measured like entries: 512 to 540 bytes each. So all leases take at most 61 MiB."""

DELETED_ONE_BY_ONE_MAX = 100
"""Up to this many keys are removed from the sorted list one by one. Each removal takes time proportional to the list,
so for more keys the list is rebuilt."""

EXPIRIES_SPARE = 1_000
"""The number of outdated expiries that may be kept, besides one for each lease."""

TTL_MIN_S = 0.1
TTL_MAX_S = 86_400.0

LEASE_ID_BITS = 63
"""The length of a lease's number: it fits into a signed 64-bit integer, as etcd's do."""


class KeySpace:
    """Entries, leases and watches. `now` is any clock that does not go back, in seconds.

    `id` distinguishes this store from every other: revisions and leases mean nothing in another one. The numbers of
    leases are random, so that a lease of another store is never mistaken for one of this store. Both come from
    `random_bytes`.
    """

    def __init__(
        self,
        history_max_revisions: int = HISTORY_MAX_REVISIONS,
        history_max_bytes: int = HISTORY_MAX_BYTES,
        random_bytes: Callable[[int], bytes] = os.urandom,
        entries_max_bytes: int = ENTRIES_MAX_BYTES,
        leases_max: int = LEASES_MAX,
    ) -> None:
        self.id = random_bytes(STORE_ID_BYTES)
        self.revision = 1
        self._random_bytes = random_bytes
        self._entries: dict[str, Entry] = {}
        self._entries_bytes = 0
        self._entries_max_bytes = entries_max_bytes
        self._keys: list[str] = []
        self._history: deque[Changes] = deque()
        self._history_bytes = 0
        self._history_max_revisions = history_max_revisions
        self._history_max_bytes = history_max_bytes
        self._leases: dict[int, _Lease] = {}
        self._shares = Shares(leases_max)
        self._expiries: list[tuple[float, int]] = []
        self._watches: dict[str, dict[int, Deliver]] = {}
        self._lengths: dict[int, int] = {}
        self._last_watch = 0

    # Reading

    @property
    def entries_bytes(self) -> int:
        """The cost of all entries."""
        return self._entries_bytes

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def get_prefix(self, prefix: str) -> Snapshot:
        return Snapshot(self.revision, tuple(self._entries[key] for key in self._keys_under(prefix)))

    def _keys_under(self, prefix: str) -> list[str]:
        keys = self._keys
        first = bisect_left(keys, prefix)
        beyond = _after_all_with(prefix)
        return keys[first:] if beyond is None else keys[first : bisect_left(keys, beyond, first)]

    # Writing

    def transact(self, transaction: Transaction) -> Outcome:
        check(transaction)
        succeeded = all(map(self._holds, transaction.compares))
        operations = transaction.then if succeeded else transaction.otherwise
        for operation in operations:
            if isinstance(operation, Put) and operation.lease != NO_LEASE and operation.lease not in self._leases:
                raise LeaseLostError(f"the lease of {shown(operation.key)} no longer exists")
        self._check_room(operations)
        self._apply(operations)
        return Outcome(succeeded, self.revision)

    def _holds(self, compare: Compare) -> bool:
        entry = self._entries.get(compare.key)
        if entry is None:
            return compare.revision == 0
        return compare.revision == (entry.created if isinstance(compare, Created) else entry.modified)

    def _check_room(self, operations: Iterable[Operation]) -> None:
        """Refuse operations that would need too much room, whatever else they delete."""
        added = sum(_bytes_of(put) for put in operations if isinstance(put, Put))
        if added and self._entries_bytes + added > self._entries_max_bytes:
            replaced = (self._entries.get(put.key) for put in operations if isinstance(put, Put))
            freed = sum(map(_bytes_of, filter(None, replaced)))
            if self._entries_bytes + added - freed > self._entries_max_bytes:
                raise NoRoomError(f"the store is full: it may hold {self._entries_max_bytes} bytes; delete something")

    def _apply(self, operations: Iterable[Operation]) -> None:
        """Carry out operations as the next revision. Operations that change nothing make no revision."""
        revision = self.revision + 1
        changes: dict[str, Change] = {}
        gone: list[str] = []
        for operation in operations:
            if isinstance(operation, Put):
                changes[operation.key] = Change(operation.key, self._put(operation, revision))
            else:
                keys = [operation.key] if isinstance(operation, Delete) else self._keys_under(operation.prefix)
                for key in keys:
                    if self._delete(key):
                        changes[key] = Change(key)
                        gone.append(key)
        self._strike(gone)
        if changes:
            self.revision = revision
            made = Changes(revision, tuple(changes.values()))
            self._remember(made)
            self._notify(made)

    def _put(self, put: Put, revision: int) -> Entry:
        old = self._entries.get(put.key)
        if old is None:
            insort(self._keys, put.key)
        elif old.lease not in (put.lease, NO_LEASE):
            self._leases[old.lease].keys.discard(put.key)
        if put.lease != NO_LEASE:
            self._leases[put.lease].keys.add(put.key)
        entry = Entry(put.key, put.value, revision if old is None else old.created, revision, put.lease)
        self._entries[put.key] = entry
        self._entries_bytes += _bytes_of(entry) - (0 if old is None else _bytes_of(old))
        return entry

    def _delete(self, key: str) -> bool:
        """Delete an entry. `_strike` removes the key from the sorted list."""
        old = self._entries.pop(key, None)
        if old is None:
            return False
        self._entries_bytes -= _bytes_of(old)
        if old.lease != NO_LEASE:
            self._leases[old.lease].keys.discard(key)
        return True

    def _strike(self, gone: list[str]) -> None:
        if len(gone) > DELETED_ONE_BY_ONE_MAX:
            self._keys = [key for key in self._keys if key in self._entries]
        else:
            for key in gone:
                del self._keys[bisect_left(self._keys, key)]

    def _remember(self, made: Changes) -> None:
        self._history.append(made)
        self._history_bytes += _size(made)
        while len(self._history) > self._history_max_revisions or self._history_bytes > self._history_max_bytes:
            self._history_bytes -= _size(self._history.popleft())

    def compact(self) -> None:
        """Forget the history. Entries stay."""
        self._history.clear()
        self._history_bytes = 0

    # Leases

    def grant(self, ttl_s: float, now: float, source: str = "") -> Lease:
        """Grant a lease, which counts for `source` until it ends.

        Raises:
            ValueError: the lease is too short or too long.
            NoRoomError: this source has too many leases.
        """
        if not TTL_MIN_S <= ttl_s <= TTL_MAX_S:
            raise ValueError(f"a lease of {ttl_s} s: it can be {TTL_MIN_S} to {TTL_MAX_S:.0f} s")
        if not self._shares.has_room(source):
            raise NoRoomError(
                f"too many leases: the store has {self._shares.taken}, {self._shares.of(source)} of them from "
                f"{source or 'here'}; revoke some, or wait until they expire"
            )
        lease_id = NO_LEASE
        while lease_id == NO_LEASE or lease_id in self._leases:
            lease_id = int.from_bytes(self._random_bytes(8), "little") >> (64 - LEASE_ID_BITS)
        self._leases[lease_id] = lease = _Lease(ttl_s, now + ttl_s, source)
        self._shares.take(source)
        self._look_at(lease.ends, lease_id)
        return Lease(lease_id, ttl_s)

    def keep_alive(self, lease_id: int, now: float) -> float:
        lease = self._leases.get(lease_id)
        if lease is None or lease.ends <= now:
            raise LeaseLostError(f"lease {lease_id} no longer exists")
        lease.ends = now + lease.ttl_s  # applied when the earlier expiry comes up
        return lease.ttl_s

    def _look_at(self, ends: float, lease_id: int) -> None:
        heappush(self._expiries, (ends, lease_id))
        if len(self._expiries) > 2 * len(self._leases) + EXPIRIES_SPARE:  # most belong to leases that were revoked
            self._expiries = [(lease.ends, number) for number, lease in self._leases.items()]
            heapify(self._expiries)

    def has_lease(self, lease_id: int) -> bool:
        return lease_id in self._leases

    def next_expiry(self) -> float | None:
        """When to check the leases again at the latest, if there are any."""
        return self._expiries[0][0] if self._expiries else None

    def revoke(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            self._apply([Delete(key) for key in sorted(lease.keys)])
            del self._leases[lease_id]
            self._shares.give_back(lease.source)

    def expire(self, now: float) -> float | None:
        """End the expired leases. Returns when to check again at the latest; None if there are no leases."""
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            _, lease_id = heappop(expiries)
            lease = self._leases.get(lease_id)
            if lease is None:
                continue
            if lease.ends <= now:
                self.revoke(lease_id)
            else:
                heappush(expiries, (lease.ends, lease_id))
        return expiries[0][0] if expiries else None

    # Watches

    def watch(self, prefix: str, from_revision: int, deliver: Deliver) -> Callable[[], None]:
        """Call `deliver` with all changes under `prefix` from that revision on. Returns a function that ends the watch.

        Past changes are delivered before this returns. `deliver` must not change the store.

        Raises:
            CompactedError: some of the past changes are forgotten.
        """
        oldest = self._history[0].revision if self._history else self.revision + 1
        if from_revision < oldest and oldest > 2:  # noqa: PLR2004 - an empty store has revision 1, so 2 is its first change
            raise CompactedError(f"changes before revision {oldest} are no longer kept")
        # Revisions have no gaps, so the number of wanted revisions is known.
        past = list(islice(reversed(self._history), max(0, self.revision + 1 - from_revision)))
        for changes in reversed(past):
            _deliver(changes, prefix, deliver)
        if from_revision > self.revision + 1:
            deliver = _from_revision(from_revision, deliver)
        self._last_watch += 1
        number = self._last_watch
        self._watches.setdefault(prefix, {})[number] = deliver
        self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1

        def end() -> None:
            group = self._watches.get(prefix, {})
            if group.pop(number, None) is not None:
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]
                if not group:
                    del self._watches[prefix]

        return end

    def _notify(self, made: Changes) -> None:
        """Deliver one object to all watches of a prefix, so that a server encodes it once."""
        prefixes = dict.fromkeys(
            change.key[:length] for change in made.changes for length in self._lengths if length <= len(change.key)
        )
        for prefix in prefixes:
            group = self._watches.get(prefix)
            if group:
                ours = _under(made, prefix)
                for deliver in list(group.values()):
                    deliver(ours)


class _Lease:
    __slots__ = ("ends", "keys", "source", "ttl_s")

    def __init__(self, ttl_s: float, ends: float, source: str) -> None:
        self.ttl_s = ttl_s
        self.ends = ends
        self.source = source
        self.keys: set[str] = set()


def _after_all_with(prefix: str) -> str | None:
    """The smallest string greater than all strings that begin with `prefix`, if there is one."""
    stem = prefix.rstrip(chr(sys.maxunicode))
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


def _size(made: Changes) -> int:
    return sum(
        CHANGE_OVERHEAD_BYTES + _bytes_of_key(change.key) + (len(change.entry.value) if change.entry else 0)
        for change in made.changes
    )


def _bytes_of(entry: Entry | Put) -> int:
    return ENTRY_OVERHEAD_BYTES + _bytes_of_key(entry.key) + len(entry.value)


def _bytes_of_key(key: str) -> int:
    return len(key) if key.isascii() else WIDE_CHAR_BYTES * len(key)


def _from_revision(from_revision: int, deliver: Deliver) -> Deliver:
    def deliver_late(changes: Changes) -> None:
        if changes.revision >= from_revision:
            deliver(changes)

    return deliver_late


def _under(made: Changes, prefix: str) -> Changes:
    ours = tuple(change for change in made.changes if change.key.startswith(prefix))
    return made if len(ours) == len(made.changes) else Changes(made.revision, ours)


def _deliver(made: Changes, prefix: str, deliver: Deliver) -> None:
    if len(made.changes) == 1:  # the usual case, and many watches may have to check it
        if made.changes[0].key.startswith(prefix):
            deliver(made)
        return
    ours = _under(made, prefix)
    if ours.changes:
        deliver(ours)
