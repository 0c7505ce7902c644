"""The store's whole behaviour, without any input or output: time is an argument, and watchers are called.

The memory engine, the embedded server and the simulator run this very class.
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
"""How many revisions are remembered for watches that start in the past."""

HISTORY_MAX_BYTES = 64 << 20
"""How many bytes they may cost: keys, values and `CHANGE_OVERHEAD_BYTES` each."""

CHANGE_OVERHEAD_BYTES = 384
"""What a remembered change costs beside its key and value. Measured as the growth of a process (CPython 3.11, 64 bits)
with 300,000 revisions of one short entry each: 330 bytes a change, and 218 if a revision has a hundred of them."""

ENTRIES_MAX_BYTES = 256 << 20
"""How many bytes entries may cost: keys, values and `ENTRY_OVERHEAD_BYTES` each. 10,000 nodes with records of 4 KiB
need 45 MiB."""

ENTRY_OVERHEAD_BYTES = 400
"""What an entry costs beside its key and value. Measured as the growth of a process (CPython 3.11, 64 bits) with up to
700,000 short entries: 220 to 226 bytes each, up to 317 under one lease, and 367 under leases with five keys each, where
tables have just grown."""

WIDE_CHAR_BYTES = 8
"""What a character costs in a key that is not all ASCII: one such character makes all of them take four bytes, and
Python keeps the key in UTF-8, too."""

LEASES_MAX = 100_000
"""How many leases there may be, those included whose holder is gone and that run out. 10,000 nodes have one or two
each. One source may have as many as are still free, so half of them."""

LEASE_BYTES = 640
"""What a lease costs. Measured like entries: 512 to 540 bytes each. So all that there may be take 61 MiB at most."""

DELETED_ONE_BY_ONE_MAX = 100
"""Up to how many keys are taken out of the sorted list one by one. Each takes as long as the list is, so for more of
them the list is made anew."""

EXPIRIES_SPARE = 1_000
"""How many ends of leases may be noted that are out of date, besides one for each lease."""

TTL_MIN_S = 0.1
TTL_MAX_S = 86_400.0

LEASE_ID_BITS = 63
"""How long a lease's number is: it fits into a signed integer of 64 bits, as etcd's do."""


class KeySpace:
    """Entries, leases and watches. `now` is any clock that does not go back, in seconds.

    `id` tells this store from every other: revisions and leases mean nothing in another one. The numbers of leases are
    random, so that a lease of another store is never taken for one of this. `random_bytes` is where both come from.
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
        """What all entries cost."""
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
                raise LeaseLostError(f"the lease of {shown(operation.key)} is no more")
        self._check_room(operations)
        self._apply(operations)
        return Outcome(succeeded, self.revision)

    def _holds(self, compare: Compare) -> bool:
        entry = self._entries.get(compare.key)
        if entry is None:
            return compare.revision == 0
        return compare.revision == (entry.created if isinstance(compare, Created) else entry.modified)

    def _check_room(self, operations: Iterable[Operation]) -> None:
        """Refuse what would be too much, whatever else the operations may delete."""
        added = sum(_bytes_of(put) for put in operations if isinstance(put, Put))
        if added and self._entries_bytes + added > self._entries_max_bytes:
            replaced = (self._entries.get(put.key) for put in operations if isinstance(put, Put))
            freed = sum(map(_bytes_of, filter(None, replaced)))
            if self._entries_bytes + added - freed > self._entries_max_bytes:
                raise NoRoomError(f"the store is full: it may hold {self._entries_max_bytes} bytes; delete something")

    def _apply(self, operations: Iterable[Operation]) -> None:
        """Carry out operations as the next revision; those that change nothing make none."""
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
        """Its place among the sorted keys is left to `_strike`."""
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
        """Forget all changes so far. What is there stays."""
        self._history.clear()
        self._history_bytes = 0

    # Leases

    def grant(self, ttl_s: float, now: float, source: str = "") -> Lease:
        """`source` is whom the lease counts for until it ends.

        Raises:
            ValueError: it is too short or too long, or this source has too many.
        """
        if not TTL_MIN_S <= ttl_s <= TTL_MAX_S:
            raise ValueError(f"a lease of {ttl_s} s: it can be {TTL_MIN_S} to {TTL_MAX_S:.0f} s")
        if not self._shares.has_room(source):
            raise NoRoomError(
                f"too many leases: the store has {self._shares.taken}, {self._shares.of(source)} of them from "
                f"{source or 'here'}; revoke some, or wait until they run out"
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
            raise LeaseLostError(f"lease {lease_id} is no more")
        lease.ends = now + lease.ttl_s  # found when the earlier end comes up
        return lease.ttl_s

    def _look_at(self, ends: float, lease_id: int) -> None:
        heappush(self._expiries, (ends, lease_id))
        if len(self._expiries) > 2 * len(self._leases) + EXPIRIES_SPARE:  # most are of leases that ended otherwise
            self._expiries = [(lease.ends, number) for number, lease in self._leases.items()]
            heapify(self._expiries)

    def has_lease(self, lease_id: int) -> bool:
        return lease_id in self._leases

    def next_expiry(self) -> float | None:
        """When to look at the leases again at the latest, if there are any."""
        return self._expiries[0][0] if self._expiries else None

    def revoke(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            self._apply([Delete(key) for key in sorted(lease.keys)])
            del self._leases[lease_id]
            self._shares.give_back(lease.source)

    def expire(self, now: float) -> float | None:
        """End the leases whose time is over; returns when to look again at the latest, if there is anything to see."""
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
        """Call `deliver` with all changes under `prefix` from that revision on; returns what ends it.

        Past changes are delivered before this returns. `deliver` must not change the store.

        Raises:
            CompactedError: some of the past is forgotten.
        """
        oldest = self._history[0].revision if self._history else self.revision + 1
        if from_revision < oldest and oldest > 2:  # noqa: PLR2004 - an empty store has revision 1, so 2 is its first change
            raise CompactedError(f"changes before revision {oldest} are forgotten")
        # Revisions have no gaps, so it is known how many of the last ones are wanted.
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
        """One object for all watches of a prefix, so that a server can encode it once."""
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
    """The least text that is greater than all that begin with `prefix`, if there is any."""
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
    if len(made.changes) == 1:  # most are of a single key, and many may have to be looked at
        if made.changes[0].key.startswith(prefix):
            deliver(made)
        return
    ours = _under(made, prefix)
    if ours.changes:
        deliver(ours)
