"""Timers on real processes: which processes may have them, and the signal to a process that misses one."""

from __future__ import annotations

import os
from contextlib import suppress
from signal import SIGKILL

from holdfast.errors.text import headline, visible
from holdfast.signals import name_of
from holdfast.watchdog.target import Target
from holdfast.watchdog.timers import Timers, choose_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.watchdog.request import FileTimerRequest

TIMERS_MAX = 10_000
"""How many timers may be set at once: a program that never releases any must not fill the agent's memory."""

PROCESSES_MAX = 512
"""How many processes may have timers at once. Each costs a descriptor, and the agent has at least 1024."""

SCOPE_SHOWN_CHARS = 200
"""How much of a scope's name a message shows."""

SCOPES_SHOWN_MAX = 5
"""How many scopes a message names."""

_INIT_PID = 1


class Expiry:  # noqa: PLW1641 - not hashable: it holds a list
    """A process that missed its deadlines, and the watchdog's reaction.

    Attributes:
        pid: the process.
        timers: its expired timers, the earliest first.
        deciding: the timer whose signal was sent; None if all of them are for the log only.
        error: why the signal could not be sent; None if it was.
    """

    __slots__ = ("deciding", "error", "pid", "timers")

    def __init__(
        self, pid: int, timers: Sequence[FileTimerRequest], deciding: FileTimerRequest | None, error: OSError | None
    ) -> None:
        self.pid = pid
        self.timers = list(timers)
        self.deciding = deciding
        self.error = error

    @property
    def signal(self) -> int:
        """The signal that was sent; 0 if none was."""
        return 0 if self.deciding is None or self.error else self.deciding.signal

    def __str__(self) -> str:
        shown = [headline(visible(timer.scope_id), SCOPE_SHOWN_CHARS) for timer in self.timers[:SCOPES_SHOWN_MAX]]
        more = len(self.timers) - len(shown)
        scopes = ", ".join(shown) + (f" and {more} more" if more else "")
        expired = f"the time of process {self.pid} for {scopes} has run out"
        if self.deciding is None:
            return f"{expired}; it asked for no signal and goes on"
        name = name_of(self.deciding.signal)
        return f"{expired}; {name} could not be sent: {self.error}" if self.error else f"{expired}; {name} was sent"

    def __repr__(self) -> str:
        return f"Expiry(pid={self.pid}, timers={self.timers}, deciding={self.deciding}, error={self.error!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expiry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Expiry.__slots__)


class Deadlines:
    """The timers that are set, each with its process. Not thread-safe: the owner locks.

    A process is held from its first timer on, so that a signal can only hit the process that asked for it. `is_worker`
    says which processes may have timers; None accepts all, since a worker's own children have deadlines too. init and
    the watching process itself are always refused.
    """

    __slots__ = ("_is_worker", "_targets", "timers")

    def __init__(self, is_worker: Callable[[int], bool] | None = None) -> None:
        self.timers = Timers()
        self._is_worker = is_worker
        self._targets: dict[int, Target] = {}

    def register(self, request: FileTimerRequest) -> str | None:
        """Set or release a timer. Returns why it was refused, or None.

        A request from a process that has ended is ignored without a refusal.
        """
        refusal = None if request.is_release else self._refusal(request)
        if refusal is None and (request.is_release or self._hold(request.worker_pid)):
            self.timers.register(request)
        self._let_go()
        return refusal

    def clear(self, pids: Iterable[int]) -> None:
        """Release all timers of these processes."""
        self.timers.clear(pids)
        self._let_go()

    def is_alive(self, pid: int) -> bool:
        """Whether a process has timers and has not ended."""
        return pid in self._targets and self._targets[pid].is_alive()

    def send(self, pid: int, signum: int) -> OSError | None:
        """Signal a process that has timers. Returns the error, or None; a process that has ended is no error."""
        target = self._targets.get(pid)
        if target is not None:
            try:
                target.send(signum)
            except ProcessLookupError:
                pass
            except OSError as error:
                return error
        return None

    def expire(self, now: float) -> list[Expiry]:
        """Signal every living process that has missed a deadline, and release the expired timers.

        Later timers of the same process stay, in case it survives the signal. Nothing survives SIGKILL.
        """
        expiries = []
        for pid, timers in self.timers.take_expired(now).items():
            if self.is_alive(pid):
                deciding = choose_signal(timers)
                error = None if deciding is None else self.send(pid, deciding.signal)
                expiries.append(Expiry(pid, timers, deciding, error))
        self.timers.clear(expiry.pid for expiry in expiries if expiry.signal == SIGKILL)
        self.forget_dead()
        return expiries

    def forget_dead(self) -> None:
        """Release all timers of processes that have ended."""
        self.clear([pid for pid, target in self._targets.items() if not target.is_alive()])

    def close(self) -> None:
        self.clear(list(self._targets))

    def _refusal(self, request: FileTimerRequest) -> str | None:
        pid = request.worker_pid
        if pid <= _INIT_PID or pid == os.getpid():
            return f"a timer on process {pid} would end more than a worker"
        if self._is_worker is not None and not self._is_worker(pid):
            return f"process {pid} is not one of the workers"
        if (pid, request.scope_id) in self.timers or self._has_room(pid):
            return None
        self.forget_dead()
        if self._has_room(pid):
            return None
        return (
            f"there are {len(self.timers)} timers on {len(self._targets)} processes, and at most {TIMERS_MAX} on "
            f"{PROCESSES_MAX} can be set; is each of them released?"
        )

    def _has_room(self, pid: int) -> bool:
        return len(self.timers) < TIMERS_MAX and (pid in self._targets or len(self._targets) < PROCESSES_MAX)

    def _hold(self, pid: int) -> bool:
        """Hold the process. Returns whether it is alive."""
        target = self._targets.get(pid)
        if target is not None and not target.is_alive():  # the pid may have been reused since
            self.clear([pid])
            target = None
        if target is None:
            with suppress(ProcessLookupError):
                target = self._targets[pid] = Target(pid)
        return target is not None and target.is_alive()

    def _let_go(self) -> None:
        """Release processes that have no timers."""
        for pid in self._targets.keys() - self.timers.pids():
            self._targets.pop(pid).close()
