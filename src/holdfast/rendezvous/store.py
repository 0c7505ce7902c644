"""The key-value store that the nodes of a round share, with the methods of torch's stores.

`LocalStore` is for a job of one node: its users share a process. `SharedStore`, in a module of its own, is for nodes
that meet in a coordination store.
"""

from __future__ import annotations

import time
from operator import index

from holdfast.errors.tree import InfrastructureError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Any, Self, TypeAlias

    Timeout: TypeAlias = float | timedelta | None

STORE_TIMEOUT_S = 300.0
"""The default timeout of a wait for a key."""


class DistStoreError(InfrastructureError, RuntimeError):
    """A store could not do what it was asked to do."""


class StoreTimeoutError(DistStoreError, TimeoutError):
    """A wait for keys timed out."""


class QueueEmptyError(DistStoreError):
    """The queue is empty, and the caller did not want to wait."""


class KeyValueStore:
    """The interface of both stores. Timeouts are seconds or a timedelta; None means the store's own."""

    def __init__(self, timeout_s: float = STORE_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s

    @property
    def timeout(self) -> timedelta:
        from datetime import timedelta

        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: float | timedelta) -> None:
        self._timeout_s = self._seconds(timeout)

    def has_extended_api(self) -> bool:
        """Whether the store has `append`, `multi_get` and `multi_set`."""
        return True

    def set(self, key: str, value: str | bytes) -> None:
        raise NotImplementedError

    def add(self, key: str, amount: int) -> int:
        raise NotImplementedError

    def wait(self, keys: Iterable[str], timeout: Timeout = None) -> None:
        raise NotImplementedError

    def barrier(self, key: str, world_size: int, timeout: Timeout = None) -> None:
        """Wait until `world_size` callers are here. Works once per `key`: later callers pass at once."""
        if self.add(f"{key}/num_members", 1) == world_size:
            self.set(f"{key}/last_member", "1")
        self.wait([f"{key}/last_member"], timeout)

    def _seconds(self, timeout: Timeout) -> float:
        if timeout is None:
            return self._timeout_s
        return float(timeout) if isinstance(timeout, int | float) else timeout.total_seconds()


class LocalStore(KeyValueStore):
    """A store in the memory of this process. Threads may share it."""

    def __init__(self, timeout_s: float = STORE_TIMEOUT_S) -> None:
        super().__init__(timeout_s)
        self._values: dict[str, bytes] = {}
        self._queues: dict[str, list[bytes]] = {}
        self._made: dict[str, Any] = {}

    @property
    def _changed(self) -> Any:
        """Made at first use: importing threading costs more than an unused store."""
        if not self._made:
            import threading

            # Atomic, unlike an assignment after a check: two conditions would lose wake-ups.
            self._made.setdefault("changed", threading.Condition())
        return self._made["changed"]

    def set(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._values[key] = as_bytes(value)
            self._changed.notify_all()

    def get(self, key: str, timeout: Timeout = None) -> bytes:
        """The value of `key`. Waits for it."""
        return self.multi_get([key], timeout)[0]

    def multi_get(self, keys: Iterable[str], timeout: Timeout = None) -> list[bytes]:
        """The values of all `keys`. Waits for them."""
        keys = as_keys(keys)
        with self._changed:
            self._wait_until_none(lambda: [key for key in keys if key not in self._values], timeout)
            return [self._values[key] for key in keys]

    def multi_set(self, keys: Iterable[str], values: Iterable[str | bytes]) -> None:
        pairs = as_pairs(keys, values)
        with self._changed:
            self._values.update(pairs)
            self._changed.notify_all()

    def append(self, key: str, value: str | bytes) -> None:
        """Append `value` to the value of `key`, if it has one."""
        with self._changed:
            self._values[key] = self._values.get(key, b"") + as_bytes(value)
            self._changed.notify_all()

    def add(self, key: str, amount: int) -> int:
        """Add to the number at `key`, initially 0. Returns the sum."""
        with self._changed:
            total = as_number(key, self._values.get(key)) + index(amount)
            self._values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set `key` if it has the expected value, or none and `expected` is empty. Returns the value afterwards.

        If the key has no value but `expected` is not empty, returns `expected`.
        """
        with self._changed:
            current = self._values.get(key)
            if (current or b"") == as_bytes(expected):
                current = self._values[key] = as_bytes(desired)
                self._changed.notify_all()
            return as_bytes(expected) if current is None else current

    def wait(self, keys: Iterable[str], timeout: Timeout = None) -> None:
        """Wait until all `keys` exist. A queue exists while it has items. StoreTimeoutError names the missing keys."""
        keys = as_keys(keys)
        with self._changed:
            self._wait_until_none(lambda: [key for key in keys if not self._has(key)], timeout)

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all `keys` exist. A queue exists while it has items."""
        with self._changed:
            return all(map(self._has, as_keys(keys)))

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def list_keys(self) -> list[str]:
        with self._changed:
            return sorted(self._values)

    def queue_push(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._queues.setdefault(key, []).append(as_bytes(value))
            self._changed.notify_all()

    def queue_pop(self, key: str, block: bool = True, timeout: Timeout = None) -> bytes:
        """The oldest item. Waits for it unless `block` is false: then an empty queue raises QueueEmptyError."""
        with self._changed:
            if not block and key not in self._queues:
                raise QueueEmptyError(f"nothing in the queue {key!r}")
            self._wait_until_none(lambda: [] if key in self._queues else [key], timeout)
            items = self._queues[key]
            item = items.pop(0)
            if not items:
                del self._queues[key]
            return item

    def queue_len(self, key: str) -> int:
        with self._changed:
            return len(self._queues.get(key, ()))

    def clone(self) -> Self:
        return self

    def _has(self, key: str) -> bool:
        return key in self._values or key in self._queues

    def _wait_until_none(self, find_missing: Any, timeout: Timeout) -> None:
        timeout_s = self._seconds(timeout)
        deadline = time.monotonic() + timeout_s
        while missing := find_missing():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise too_late(timeout_s, missing)
            self._changed.wait(left_s)


def too_late(timeout_s: float, missing: Iterable[str]) -> StoreTimeoutError:
    return StoreTimeoutError(f"not in the store after {timeout_s:g} s: {', '.join(missing)}")


def as_bytes(value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a value is str or bytes, not {type(value).__name__}")


def as_keys(keys: Iterable[str]) -> list[str]:
    """The keys as a list. A single string is refused as a mistake, not split into letters."""
    if isinstance(keys, str | bytes):
        raise TypeError(f"write a list of keys, not {keys!r}")
    return list(keys)


def as_pairs(keys: Iterable[str], values: Iterable[str | bytes]) -> dict[str, bytes]:
    """Keys with their values. Raises ValueError if the numbers of keys and values differ."""
    keys, values = as_keys(keys), list(values)
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values")
    return {key: as_bytes(value) for key, value in zip(keys, values, strict=True)}


def as_number(key: str, value: bytes | None) -> int:
    """A value as a number; None is 0."""
    try:
        return int(value or b"0")
    except ValueError:
        raise ValueError(f"the value of {key!r} is not a number: {value!r}") from None
