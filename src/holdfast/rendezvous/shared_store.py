"""The store of nodes that meet in a coordination store, with the methods that people use on torch's stores.

A key `k` has its value at `<prefix>k|=` and the items of its queue at `<prefix>k|+<identifier>`. Waits are watches.
What reads before it writes does so in a loop: the write is guarded by the revision that was read.
"""

from __future__ import annotations

import os.path
import secrets
import time
from operator import index

from holdfast.coordination.errors import CompactedError, StoreUnavailableError
from holdfast.coordination.model import Created, Delete, Modified, Put, Transaction, absent
from holdfast.rendezvous.store import (
    STORE_TIMEOUT_S,
    KeyValueStore,
    QueueEmptyError,
    as_bytes,
    as_keys,
    as_number,
    as_pairs,
    too_late,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from holdfast.coordination.blocking import BlockingStore
    from holdfast.coordination.model import Entry
    from holdfast.rendezvous.store import Timeout

OUTAGE_MAX_S = 10.0
"""How long a wait bears a store that does not answer: an election among the store's own servers takes seconds."""

OUTAGE_PAUSE_S = 0.2
"""How long to leave a store alone that did not answer."""

PUTS_MAX = 64
"""How many keys one transaction sets; etcd as it is installed takes 128 operations."""

PUTS_MAX_BYTES = 1 << 20
"""How large the values that one transaction sets may be together, if they are several."""

_VALUE = "|="
_ITEM = "|+"


class SharedStore(KeyValueStore):
    """Keys under a prefix of a coordination store. Threads and machines may share it.

    Waits outlive a short outage of the store. A write that gets no answer raises StoreUnavailableError:
    it may or may not have been carried out, and to do it again may be wrong.
    """

    def __init__(self, store: BlockingStore, prefix: str, timeout_s: float = STORE_TIMEOUT_S) -> None:
        super().__init__(timeout_s)
        self._store = store
        self._prefix = prefix

    def set(self, key: str, value: str | bytes) -> None:
        self._put({key: as_bytes(value)})

    def multi_set(self, keys: Iterable[str], values: Iterable[str | bytes]) -> None:
        """Set several keys; where they are few and small, all at once."""
        part: dict[str, bytes] = {}
        for key, value in as_pairs(keys, values).items():
            if len(part) == PUTS_MAX or sum(map(len, part.values())) + len(value) > PUTS_MAX_BYTES:
                self._put(part)
                part = {}
            part[key] = value
        self._put(part)

    def get(self, key: str, timeout: Timeout = None) -> bytes:
        """The value of `key`, which is waited for."""
        return self.multi_get([key], timeout)[0]

    def multi_get(self, keys: Iterable[str], timeout: Timeout = None) -> list[bytes]:
        """The values of all `keys`, which are waited for."""
        keys = as_keys(keys)
        places = [self._place(key) for key in keys]

        def find_missing(entries: dict[str, Entry]) -> list[str]:
            return [key for key, place in zip(keys, places, strict=True) if place not in entries]

        entries = self._wait_until_none(keys, find_missing, self._seconds(timeout))
        return [entries[place].value for place in places]

    def append(self, key: str, value: str | bytes) -> None:
        """Put `value` behind what `key` has, if anything."""
        self._change(key, lambda current: (current or b"") + as_bytes(value))

    def add(self, key: str, amount: int) -> int:
        """Add to the number that `key` has, 0 at first; returns the sum."""
        return int(self._change(key, lambda current: b"%d" % (as_number(key, current) + index(amount))))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set `key` if it has the expected value, or no value and none is expected; returns what it has then.

        For a key that has no value where one is expected, that is the expected one.
        """
        expected, desired = as_bytes(expected), as_bytes(desired)
        while True:
            entry = self._store.get(self._place(key))
            current = entry.value if entry else None
            if (current or b"") != expected:
                return expected if current is None else current
            if self._put_over(entry, key, desired):
                return desired

    def wait(self, keys: Iterable[str], timeout: Timeout = None) -> None:
        """Wait until all `keys` are there; StoreTimeoutError names those that are not. A queue counts with items."""
        keys = as_keys(keys)
        self._wait_until_none(keys, lambda entries: self._missing(keys, entries), self._seconds(timeout))

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all `keys` are there. A queue counts with items."""
        keys = as_keys(keys)
        return not keys or not self._missing(keys, self._read(self._common(keys))[1])

    def delete_key(self, key: str) -> bool:
        place = self._place(key)
        was_absent = self._store.transact(Transaction((absent(place),), (), (Delete(place),))).succeeded
        return not was_absent

    def num_keys(self) -> int:
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        _, entries = self._read(self._prefix)
        return sorted(
            place.removeprefix(self._prefix).removesuffix(_VALUE) for place in entries if place.endswith(_VALUE)
        )

    def queue_push(self, key: str, value: str | bytes) -> None:
        place = f"{self._prefix}{key}{_ITEM}{secrets.token_hex(8)}"
        self._store.transact(Transaction((), (Put(place, as_bytes(value)),)))

    def queue_pop(self, key: str, block: bool = True, timeout: Timeout = None) -> bytes:
        """The oldest item, which is waited for unless `block` is false: QueueEmptyError if there is none."""
        deadline = time.monotonic() + self._seconds(timeout)
        while True:
            if block:
                entries = self._wait_until_none(
                    [key], lambda entries: [] if self._items(key, entries) else [key], deadline - time.monotonic()
                )
            else:
                _, entries = self._read(self._common([key]))
            items = self._items(key, entries)
            if not items:
                raise QueueEmptyError(f"nothing in the queue {key!r}")
            oldest = min(items, key=lambda item: item.created)
            guard = Created(oldest.key, oldest.created)
            if self._store.transact(Transaction((guard,), (Delete(oldest.key),))).succeeded:
                return oldest.value

    def queue_len(self, key: str) -> int:
        return len(self._items(key, self._read(self._common([key]))[1]))

    def clone(self) -> Self:
        return type(self)(self._store, self._prefix, self._timeout_s)

    # Places

    def _place(self, key: str) -> str:
        return f"{self._prefix}{key}{_VALUE}"

    def _common(self, keys: list[str]) -> str:
        """The longest prefix of all that belongs to these keys."""
        return os.path.commonprefix([f"{self._prefix}{key}|" for key in keys])  # noqa: RUF071 - letters are meant

    def _items(self, key: str, entries: dict[str, Entry]) -> list[Entry]:
        start = f"{self._prefix}{key}{_ITEM}"
        return [entry for place, entry in entries.items() if place.startswith(start) and "|" not in place[len(start) :]]

    def _missing(self, keys: list[str], entries: dict[str, Entry]) -> list[str]:
        owners = {place.rpartition("|")[0] for place in entries}
        return [key for key in keys if f"{self._prefix}{key}" not in owners]

    # Writing

    def _put(self, values: dict[str, bytes]) -> None:
        if values:
            puts = tuple(Put(self._place(key), value) for key, value in values.items())
            self._store.transact(Transaction((), puts))

    def _put_over(self, entry: Entry | None, key: str, value: bytes) -> bool:
        """Set `key` unless it was changed since `entry` was read."""
        place = self._place(key)
        guard = Modified(place, entry.modified if entry else 0)
        return self._store.transact(Transaction((guard,), (Put(place, value),))).succeeded

    def _change(self, key: str, make: Callable[[bytes | None], bytes]) -> bytes:
        """Set `key` to what `make` makes of its value; returns that."""
        while True:
            entry = self._store.get(self._place(key))
            value = make(entry.value if entry else None)
            if self._put_over(entry, key, value):
                return value

    # Reading and waiting

    def _read(self, prefix: str) -> tuple[int, dict[str, Entry]]:
        snapshot = self._store.get_prefix(prefix)
        return snapshot.revision, {entry.key: entry for entry in snapshot.entries}

    def _wait_until_none(
        self, keys: list[str], find_missing: Callable[[dict[str, Entry]], list[str]], timeout_s: float
    ) -> dict[str, Entry]:
        """Wait until nothing is missing among what belongs to `keys`; returns that."""
        if not keys:
            return {}
        wait = _Wait(self._store, self._common(keys), find_missing, timeout_s)
        while True:
            try:
                return wait.until_none_is_missing()
            except CompactedError:
                continue
            except StoreUnavailableError as error:
                wait.bear(error)


class _Wait:
    """One wait for entries under a prefix, however often it has to begin again."""

    def __init__(
        self,
        store: BlockingStore,
        prefix: str,
        find_missing: Callable[[dict[str, Entry]], list[str]],
        timeout_s: float,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._find_missing = find_missing
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._outage_began: float | None = None

    def until_none_is_missing(self) -> dict[str, Entry]:
        snapshot = self._store.get_prefix(self._prefix)
        self._outage_began = None
        entries = {entry.key: entry for entry in snapshot.entries}
        if not self._find_missing(entries):
            return entries
        with self._store.watch(self._prefix, snapshot.revision + 1) as watch:
            while missing := self._find_missing(entries):
                try:
                    changes = watch.next(max(0.0, self._deadline - time.monotonic()))
                except TimeoutError:
                    raise too_late(self._timeout_s, missing) from None
                if changes is None:
                    raise StoreUnavailableError("the store was closed", is_gone=True)
                for change in changes.changes:
                    if change.entry is None:
                        entries.pop(change.key, None)
                    else:
                        entries[change.key] = change.entry
        return entries

    def bear(self, error: StoreUnavailableError) -> None:
        """Pause, or raise the error if the store has been away for too long or for good."""
        now = time.monotonic()
        if self._outage_began is None:
            self._outage_began = now
        if error.is_gone or now + OUTAGE_PAUSE_S > min(self._outage_began + OUTAGE_MAX_S, self._deadline):
            raise error
        time.sleep(OUTAGE_PAUSE_S)
