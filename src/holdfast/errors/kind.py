"""The ways in which a worker can fail, and how to tell the victims of a failure from its cause."""

from __future__ import annotations

import re
from enum import StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class FailureKind(StrEnum):
    """How a worker failed."""

    EXCEPTION = "exception"
    """A Python exception that nobody caught."""

    COMMUNICATION = "communication"
    """It lost a peer: a collective that timed out, a connection that was reset. Mostly the victim of another's
    failure, and the cause only where there is no other.
    """

    CRASH = "crash"
    """A signal of the kind that only a fault in native code brings: SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL."""

    OUT_OF_MEMORY = "out of memory"
    """The kernel's out-of-memory killer ended it."""

    KILLED = "killed"
    """Somebody else's signal ended it."""

    EXIT = "exit"
    """It left with an exit code and said no more."""

    HANG = "hang"
    """It made no progress for too long, and was ended for that."""

    TIMEOUT = "timeout"
    """It took longer than it had allowed itself, and the watchdog ended it."""


INTERPRETER_END = "the end of the interpreter"
"""Where a process crashes that has left its program's last line behind."""

MODULE_START = "python -m"
"""Where a program fails that Python was to start by the name of its module, and did not find."""

INFRASTRUCTURE = frozenset({FailureKind.COMMUNICATION, FailureKind.KILLED, FailureKind.OUT_OF_MEMORY})
"""What a machine or a network may be to blame for, so that it helps to wait a little before the next attempt."""

CONNECTION_ERRORS = frozenset({"ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError"})
"""Exceptions that always mean a lost peer."""

PEER_ERRORS = frozenset(
    {
        *("DistBackendError", "DistNetworkError", "DistStoreError", "DistError"),
        *("RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "TimeoutError", "ConnectionError", "OSError"),
    }
)
"""Exceptions that mean a lost peer if their text says so."""

_LOST_PEER = re.compile(
    r"connection (?:was )?(?:reset|closed|aborted|lost)|broken pipe|socket (?:closed|is closed|timeout)"
    r"|(?:remote process|peer) (?:exited|closed|has)|closed by (?:the )?(?:remote )?peer"
    r"|failed to recv|recvvalue failed|heartbeat (?:timeout|timed)|missed heartbeats|barrier (?:timed|failed)"
    r"|\bnccl\b.*(?:error|timeout|abort)|\b(?:gloo|collective)\b.*(?:time|abort|error|fail)"
    r"|timed? ?out (?:after )?waiting|wait timeout|timeout waiting|watchdog caught"
    r"|\b(?:unavailable|deadline_exceeded|aborted)\b:",
    re.IGNORECASE,
)


_TIMED_OUT = re.compile(r"tim(?:e|ed)[ -]?out|deadline_exceeded", re.IGNORECASE)


def is_lost_peer(exception: str, text: str) -> bool:
    """Whether an exception of this class, with this text, tells of a peer that went away or does not answer."""
    name = exception.rpartition(".")[2]
    return name in CONNECTION_ERRORS or (name in PEER_ERRORS and says_lost_peer(text))


def says_lost_peer(text: str) -> bool:
    return _LOST_PEER.search(text) is not None


def says_timeout(text: str) -> bool:
    """Whether a lost peer is one that was waited for until a limit passed: it may be alive and elsewhere."""
    return _TIMED_OUT.search(text) is not None


def cause_of(kinds: Iterable[FailureKind]) -> int:
    """The index of the cause among failures that are in the order in which they became known.

    It is the first that is not somebody's victim; if all of them lost a peer, the first.
    """
    in_order = list(kinds)
    causes = (place for place, kind in enumerate(in_order) if kind is not FailureKind.COMMUNICATION)
    return next(causes, 0)
