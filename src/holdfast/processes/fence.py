"""The fence of a set: the time until which it may live, in memory that the agent writes and the keeper reads.

A write never blocks, whatever the keeper does, and only the newest fence counts. The time is stored twice, so that a
reader notices a write in progress.
"""

from __future__ import annotations

import os

FENCE_BYTES = 16
"""The size of the fence, at the beginning of the file that the agent and the keeper share."""

_NUMBER_BYTES = FENCE_BYTES // 2
_LATEST_NS = (1 << 63) - 1
_READS_MAX = 1_000


def write_fence(fd: int, at: float) -> None:
    """Let the set live until this monotonic time."""
    number = int(max(1.0, min(at * 1e9, _LATEST_NS - 1024))).to_bytes(_NUMBER_BYTES, "little")
    os.pwrite(fd, number + number, 0)


def read_fence(fd: int) -> float | None:
    """The newest fence, or None if none was set."""
    first = second = 0
    for _ in range(_READS_MAX):
        data = os.pread(fd, FENCE_BYTES, 0)
        first = int.from_bytes(data[:_NUMBER_BYTES], "little")
        second = int.from_bytes(data[_NUMBER_BYTES:], "little")
        if first == second:
            break
    earlier = min(first, second)
    return earlier / 1e9 if earlier else None
