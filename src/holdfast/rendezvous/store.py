"""A store for those who share a process: what the nodes of a round have in common when there is one node."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

STORE_TIMEOUT_S = 300.0
"""How long a wait for a key takes at most, where nobody says otherwise."""


class LocalStore:
    """Keys and values, with the methods that people use on torch's stores. Threads may share it."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed_now: Any = None

    @property
    def _changed(self) -> Any:
        """Made at the first use: to import threading costs more than a store that nobody uses."""
        if self._changed_now is None:
            import threading  # noqa: PLC0415 - see above

            self._changed_now = threading.Condition()
        return self._changed_now

    def set(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._values[key] = _as_bytes(value)
            self._changed.notify_all()

    def get(self, key: str, timeout: float = STORE_TIMEOUT_S) -> bytes:
        """The value of `key`, which is waited for."""
        self.wait([key], timeout)
        return self._values[key]

    def multi_get(self, keys: Iterable[str], timeout: float = STORE_TIMEOUT_S) -> list[bytes]:
        return [self.get(key, timeout) for key in keys]

    def multi_set(self, keys: Iterable[str], values: Iterable[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set `key` if it has the expected value, or no value and none is expected; returns what it has then."""
        with self._changed:
            current = self._values.get(key)
            if current == _as_bytes(expected) or (current is None and not expected):
                current = self._values[key] = _as_bytes(desired)
                self._changed.notify_all()
            return _as_bytes(expected) if current is None else current

    def wait(self, keys: Iterable[str], timeout: float = STORE_TIMEOUT_S) -> None:
        """Wait until all `keys` are there; TimeoutError names those that are not."""
        keys = list(keys)
        deadline = time.monotonic() + timeout
        with self._changed:
            while missing := [key for key in keys if key not in self._values]:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise TimeoutError(f"not in the store after {timeout} s: {', '.join(missing)}")

    def check(self, keys: Iterable[str]) -> bool:
        return all(key in self._values for key in keys)

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
