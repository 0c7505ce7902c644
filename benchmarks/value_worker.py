"""The function whose value is sent home. It has a module of its own because the worker imports it."""

from __future__ import annotations

import time


def produce(size: int, clock: str) -> bytes:
    """A value of that many bytes; the file `clock` gets the time when it was ready to be returned."""
    made = value(size)
    with open(clock, "w") as file:
        file.write(str(time.monotonic_ns()))
    return made


def value(size: int) -> bytes:
    return b"holdfast" * (size // 8)
