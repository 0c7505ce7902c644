"""What the keeper and its workers inherit: signal dispositions, and the limit of open files."""

from __future__ import annotations

import signal

from holdfast import descriptors
from holdfast.signals import FAULTS, IGNORED_BY_PYTHON, UNCATCHABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Plain = tuple[tuple[int, ...], tuple[int, ...], int | None]


class SignalSetup:
    """The agent's signal dispositions, so that workers start as if the agent had started them.

    `files_max` is the limit of open files for the workers, if the agent has raised its own.
    """

    __slots__ = ("blocked", "files_max", "ignored")

    def __init__(self, blocked: Iterable[int], ignored: Iterable[int], files_max: int | None = None) -> None:
        self.blocked = tuple(blocked)
        self.ignored = tuple(ignored)
        self.files_max = files_max

    def plain(self) -> Plain:
        """The constructor's arguments, for `marshal`."""
        return tuple(map(int, self.blocked)), tuple(map(int, self.ignored)), self.files_max

    @classmethod
    def block_all(cls) -> SignalSetup:
        """Block every signal until the keeper has its own handlers; returns the state to restore."""
        ignored = [
            s for s in signal.valid_signals() if s not in IGNORED_BY_PYTHON and signal.getsignal(s) is signal.SIG_IGN
        ]
        files_max = descriptors.before()
        return cls(signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()), ignored, files_max)

    def unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)

    def restore(self) -> None:
        """In a worker: restore the agent's dispositions, and reset those that no program expects to inherit."""
        for signum in signal.valid_signals() - UNCATCHABLE:
            signal.signal(signum, signal.SIG_IGN if signum in self.ignored else signal.SIG_DFL)
        if self.files_max is not None:
            descriptors.restore(self.files_max)
        self.unblock()


def ignore_signals() -> None:
    """Ignore all signals but SIGCHLD and faults: a signal to all processes of a job must not end the keeper."""
    for signum in signal.valid_signals() - UNCATCHABLE - FAULTS:
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
