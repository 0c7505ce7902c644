"""Until when a set of processes may live: a time in memory that the agent writes and the keeper reads.

A write cannot block, whatever the keeper does, and only the newest fence counts. It stands there twice, so that a
reader sees whether it has read in the middle of a write.
"""

from __future__ import annotations

import os

FENCE_BYTES = 16
"""The fence is at the beginning of the file that the agent and the keeper share."""

_NUMBER_BYTES = FENCE_BYTES // 2
_LATEST_NS = (1 << 63) - 1
_READS_MAX = 1_000


def write_fence(fd: int, at: float) -> None:
    """Let the set live until this monotonic time."""
    number = int(max(1.0, min(at * 1e9, _LATEST_NS - 1024))).to_bytes(_NUMBER_BYTES, "little")
    os.pwrite(fd, number + number, 0)


def read_fence(fd: int) -> float | None:
    """The newest fence, or None if there was none."""
    first = second = 0
    for _ in range(_READS_MAX):
        data = os.pread(fd, FENCE_BYTES, 0)
        first = int.from_bytes(data[:_NUMBER_BYTES], "little")
        second = int.from_bytes(data[_NUMBER_BYTES:], "little")
        if first == second:
            break
    earlier = min(first, second)
    return earlier / 1e9 if earlier else None
