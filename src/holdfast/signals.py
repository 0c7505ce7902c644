"""Sets of signals, and what an interpreter does with them."""

from __future__ import annotations

import signal

FAULTS = frozenset(
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
"""The signals that a thread causes itself. It must not block them."""

UNCATCHABLE = frozenset((signal.SIGKILL, signal.SIGSTOP))

IGNORED_BY_PYTHON = frozenset((signal.SIGPIPE, signal.SIGXFSZ))
"""The signals that every Python program ignores from its start."""


def name_of(signum: int) -> str:
    """The signal's name, such as SIGKILL; real-time signals have none and get their number."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def leave_to_main_thread() -> set[int]:
    """Block all signals in this thread, and in those that it starts, even while the main thread blocks them. A fault
    still ends the process. Returns the mask before.
    """
    return signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)


def set_as_interpreter() -> None:
    """Set the signals that the interpreter sets at its start, in a process that was forked."""
    for signum in IGNORED_BY_PYTHON:
        signal.signal(signum, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
