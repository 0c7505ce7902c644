"""Detect workers that are stuck in the kernel, where no signal reaches them.

A process in state D waits for a device or a file server that may never answer. A restart does not help, because the old
process cannot be killed. So a worker that stays in that state for too long ends the job. The check is off unless a
timeout is given: only polling shows how long a state has lasted.
"""

from __future__ import annotations

import os
import time

from holdfast import procfs
from holdfast.logger import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"

LOOKS_PER_TIMEOUT = 10
"""How many times a worker's state is checked in one timeout."""

log = get_logger(__name__)


class UninterruptibleWatch:
    """Finds a worker that was in state D at every look for `timeout_s` or longer."""

    def __init__(self, timeout_s: float, state_of: Callable[[int], str] | None = None) -> None:
        self.timeout_s = timeout_s
        self.interval_s = timeout_s / LOOKS_PER_TIMEOUT
        self._state_of = state_of or procfs.state
        self._since: dict[int, float] = {}

    def look(self, pids: Iterable[int], now: float) -> int | None:
        """A process that has been stuck for too long at the monotonic time `now`, if there is one."""
        stuck = {pid for pid in pids if self._state_of(pid) == "D"}
        self._since = {pid: self._since.get(pid, now) for pid in stuck}
        return next((pid for pid, since in self._since.items() if now - since >= self.timeout_s), None)

    def has_found(self, pids: Iterable[int]) -> bool:
        """Look now, and log an error about a process that has been stuck for too long."""
        pid = self.look(pids, time.monotonic())
        if pid is not None:
            log.error("PID %s has been stuck in the kernel for %s s; a restart cannot help", pid, self.timeout_s)
        return pid is not None


def refuse_beside(stuck: Collection[int]) -> None:
    """Refuse to go on beside processes that SIGKILL did not end.

    Raises:
        InfrastructureError: there is one.
    """
    if not stuck:
        return
    from holdfast.errors.tree import InfrastructureError

    raise InfrastructureError(
        f"SIGKILL did not end PID {', '.join(map(str, stuck))}, which is stuck in the kernel or belongs to another "
        "user; the job ends, because no new worker may run beside it"
    )


def timeout_from_environment() -> float:
    """The timeout from the environment, in seconds; 0 if it is not set."""
    text = os.environ.get(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT, "0")
    try:
        return max(0.0, float(text))
    except ValueError:
        from holdfast.errors.tree import InputError

        raise InputError(
            f"{TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT}={text!r}: write a number of seconds, or 0 for never"
        ) from None
