"""The key-value store of an elastic job's nodes, with the methods of torch's stores.

The value of a key `k` is at `<prefix>k|=`, and the items of its queue are at `<prefix>k|+<identifier>`. Waits are
watches. A method that reads before it writes does so in a loop: the write is guarded by the revision that was read.
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
"""How long a wait tolerates a store that does not answer: an election among the store's own servers takes seconds."""

OUTAGE_PAUSE_S = 0.2
"""The pause before a store that did not answer is asked again."""

PUTS_MAX = 64
"""The number of keys that one transaction sets. etcd's default limit is 128 operations."""

PUTS_MAX_BYTES = 1 << 20
"""The total size of the values that one transaction sets, if there are several."""

_VALUE = "|="
_ITEM = "|+"


class SharedStore(KeyValueStore):
    """Keys under a prefix of a coordination store. Threads and machines may share it.

    Waits survive a short outage of the store. A write without an answer raises StoreUnavailableError: it may or may not
    have been carried out, and a retry may be wrong.
    """

    def __init__(self, store: BlockingStore, prefix: str, timeout_s: float = STORE_TIMEOUT_S) -> None:
        super().__init__(timeout_s)
        self._store = store
        self._prefix = prefix

    def set(self, key: str, value: str | bytes) -> None:
        self._put({key: as_bytes(value)})

    def multi_set(self, keys: Iterable[str], values: Iterable[str | bytes]) -> None:
        """Set several keys; all at once if they are few and small."""
        part: dict[str, bytes] = {}
        for key, value in as_pairs(keys, values).items():
            if len(part) == PUTS_MAX or sum(map(len, part.values())) + len(value) > PUTS_MAX_BYTES:
                self._put(part)
                part = {}
            part[key] = value
        self._put(part)

    def get(self, key: str, timeout: Timeout = None) -> bytes:
        """The value of `key`. Waits for it."""
        return self.multi_get([key], timeout)[0]

    def multi_get(self, keys: Iterable[str], timeout: Timeout = None) -> list[bytes]:
        """The values of all `keys`. Waits for them."""
        keys = as_keys(keys)
        places = [self._place(key) for key in keys]

        def find_missing(entries: dict[str, Entry]) -> list[str]:
            return [key for key, place in zip(keys, places, strict=True) if place not in entries]

        entries = self._wait_until_none(keys, find_missing, self._seconds(timeout))
        return [entries[place].value for place in places]

    def append(self, key: str, value: str | bytes) -> None:
        """Append `value` to the value of `key`, if it has one."""
        self._change(key, lambda current: (current or b"") + as_bytes(value))

    def add(self, key: str, amount: int) -> int:
        """Add to the number at `key`, initially 0. Returns the sum."""
        return int(self._change(key, lambda current: b"%d" % (as_number(key, current) + index(amount))))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set `key` if it has the expected value, or none and `expected` is empty. Returns the value afterwards.

        If the key has no value but `expected` is not empty, returns `expected`.
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
        """Wait until all `keys` exist. A queue exists while it has items. StoreTimeoutError names the missing keys."""
        keys = as_keys(keys)
        self._wait_until_none(keys, lambda entries: self._missing(keys, entries), self._seconds(timeout))

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all `keys` exist. A queue exists while it has items."""
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
        """The oldest item. Waits for it unless `block` is false: then an empty queue raises QueueEmptyError."""
        deadline = time.monotonic() + self._seconds(timeout)
        while True:
            if block:
                entries = self._wait_until_none(
                    [key],
                    lambda entries: [] if _items(f"{self._prefix}{key}", entries) else [key],
                    deadline - time.monotonic(),
                )
            else:
                _, entries = self._read(self._common([key]))
            items = _items(f"{self._prefix}{key}", entries)
            if not items:
                raise QueueEmptyError(f"nothing in the queue {key!r}")
            oldest = min(items, key=lambda item: item.created)
            guard = Created(oldest.key, oldest.created)
            if self._store.transact(Transaction((guard,), (Delete(oldest.key),))).succeeded:
                return oldest.value

    def queue_len(self, key: str) -> int:
        return len(_items(f"{self._prefix}{key}", self._read(self._common([key]))[1]))

    def clone(self) -> Self:
        return type(self)(self._store, self._prefix, self._timeout_s)

    # Keys

    def _place(self, key: str) -> str:
        return f"{self._prefix}{key}{_VALUE}"

    def _common(self, keys: list[str]) -> str:
        """The longest prefix that the entries of all `keys` share."""
        return os.path.commonprefix([f"{self._prefix}{key}|" for key in keys])  # noqa: RUF071 - letters are meant

    def _missing(self, keys: list[str], entries: dict[str, Entry]) -> list[str]:
        owners = {place.rpartition("|")[0] for place in entries}
        return [key for key in keys if f"{self._prefix}{key}" not in owners]

    # Writing

    def _put(self, values: dict[str, bytes]) -> None:
        if values:
            puts = tuple(Put(self._place(key), value) for key, value in values.items())
            self._store.transact(Transaction((), puts))

    def _put_over(self, entry: Entry | None, key: str, value: bytes) -> bool:
        """Set `key` unless it has changed since `entry` was read."""
        place = self._place(key)
        guard = Modified(place, entry.modified if entry else 0)
        return self._store.transact(Transaction((guard,), (Put(place, value),))).succeeded

    def _change(self, key: str, make: Callable[[bytes | None], bytes]) -> bytes:
        """Set `key` to the result of `make` for its value. Returns the result."""
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
        """Wait until `find_missing` finds nothing missing among the entries of `keys`. Returns the entries."""
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
    """One wait for entries under a prefix, across all its retries."""

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
        """Pause, or raise the error if the store has been unavailable for too long, or for good."""
        now = time.monotonic()
        if self._outage_began is None:
            self._outage_began = now
        if error.is_gone or now + OUTAGE_PAUSE_S > min(self._outage_began + OUTAGE_MAX_S, self._deadline):
            raise error
        time.sleep(OUTAGE_PAUSE_S)


def _items(place: str, entries: dict[str, Entry]) -> list[Entry]:
    """The items of the queue at `place`."""
    start = f"{place}{_ITEM}"
    return [entry for key, entry in entries.items() if key.startswith(start) and "|" not in key[len(start) :]]
