"""Workers that are stuck in the kernel: alive, deaf to every signal, and never to come back.

A process in state D waits for a device or a file server that may never answer. Restarting does not help, as the old
process cannot be ended; so a worker that stays in that state for too long ends the job. It is off unless a time is
given, since nothing but asking again and again tells how long a state has lasted.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TIMEOUT_VARIABLE = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"

LOOKS_PER_TIMEOUT = 10
"""How finely the time that a worker is stuck is measured."""


class UninterruptibleWatch:
    """Tells which worker has been in state D for `timeout_s` or longer, at every look of a row."""

    def __init__(self, timeout_s: float, state_of: Callable[[int], str] | None = None) -> None:
        self.timeout_s = timeout_s
        self.interval_s = timeout_s / LOOKS_PER_TIMEOUT
        self._state_of = state_of or process_state
        self._since: dict[int, float] = {}

    def look(self, pids: Iterable[int], now: float) -> int | None:
        """A process that is stuck for too long at the monotonic time `now`, if there is one."""
        stuck = {pid for pid in pids if self._state_of(pid) == "D"}
        self._since = {pid: self._since.get(pid, now) for pid in stuck}
        return next((pid for pid, since in self._since.items() if now - since >= self.timeout_s), None)


def timeout_from_environment() -> float:
    """The time that the environment gives, in seconds; 0 where it gives none."""
    text = os.environ.get(TIMEOUT_VARIABLE, "0")
    try:
        return max(0.0, float(text))
    except ValueError:
        from holdfast.errors.tree import InputError

        raise InputError(f"{TIMEOUT_VARIABLE}={text!r}: a number of seconds is needed, 0 for never") from None


def process_state(pid: int) -> str:
    """The letter of a process's state; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold anything, a ')' included; what follows the last one is regular.
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""
