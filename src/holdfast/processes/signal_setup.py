"""How processes treat signals: the keeper, and the workers it starts as if somebody else had."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FAULTS = frozenset(
    (
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    )
)
_UNCATCHABLE = frozenset((signal.SIGKILL, signal.SIGSTOP))
_IGNORED_BY_PYTHON = frozenset((signal.SIGPIPE, signal.SIGXFSZ))


class SignalSetup:
    """How the agent treated signals, so that the workers can start as if it had started them."""

    __slots__ = ("blocked", "ignored")

    def __init__(self, blocked: Iterable[int], ignored: Iterable[int]) -> None:
        self.blocked = tuple(blocked)
        self.ignored = tuple(ignored)

    @classmethod
    def block_all(cls) -> SignalSetup:
        """Hold every signal back until the keeper has its own handlers; returns what to go back to."""
        ignored = [
            s for s in signal.valid_signals() if s not in _IGNORED_BY_PYTHON and signal.getsignal(s) is signal.SIG_IGN
        ]
        return cls(signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()), ignored)

    def unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)

    def restore(self) -> None:
        """In a worker: the agent's dispositions, with what no program expects to inherit set to default."""
        for signum in signal.valid_signals() - _UNCATCHABLE:
            signal.signal(signum, signal.SIG_IGN if signum in self.ignored else signal.SIG_DFL)
        self.unblock()


def ignore_signals() -> None:
    """Only SIGCHLD is ours. A signal to every process of a job must not end the one that ends the others."""
    for signum in signal.valid_signals() - _UNCATCHABLE - _FAULTS:
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
