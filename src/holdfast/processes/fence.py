"""The fence of a set: the time until which it may live, in memory that the agent writes and the keeper reads.

A write never blocks, whatever the keeper does, and only the newest fence counts. The time is stored twice, so that a
reader notices a write in progress. The keeper enforces the fence, and so does the agent, by a `FenceGuard`.
"""

from __future__ import annotations

import os

from holdfast.waiting import POLL_MAX_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.processes.keeper_client import KeeperClient

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


class FenceGuard:
    """The agent's own watch on the fence: a thread beside the keeper, which may have been stopped.

    It sleeps until the fence that it knows, so a fence that is renewed in time wakes it once in a lease. It then
    continues a stopped keeper.
    """

    def __init__(self, client: KeeperClient) -> None:
        import threading

        self._client = client
        self._news = threading.Event()
        threading.Thread(target=self._watch, name="holdfast-fence", daemon=True).start()

    def wake(self) -> None:
        """Call when the fence is earlier than before, or the set is gone."""
        self._news.set()

    def _watch(self) -> None:
        client = self._client
        while not client.is_gone and not client.is_closed and not client.is_fenced:
            wait_s = client.overdue_in_s()
            if wait_s > 0:
                self._news.wait(min(wait_s, POLL_MAX_S))
                self._news.clear()
                client.continue_keeper()
            else:
                client.enforce_fence()
