"""The kinds of failures, and how to tell victims from the cause."""

from __future__ import annotations

import re
from enum import StrEnum

from holdfast.errors.text import clipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class FailureKind(StrEnum):
    """How a worker failed."""

    EXCEPTION = "exception"
    """An uncaught Python exception."""

    COMMUNICATION = "communication"
    """The worker lost a peer: a collective timed out, or a connection was reset. Usually a victim of another failure;
    the cause only if there is no other.
    """

    CRASH = "crash"
    """A signal that only a fault in native code raises: SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL."""

    OUT_OF_MEMORY = "out of memory"
    """The kernel's out-of-memory killer ended the worker."""

    KILLED = "killed"
    """A signal from outside the worker ended it."""

    EXIT = "exit"
    """The worker exited with an exit code and recorded no exception."""

    HANG = "hang"
    """The worker made no progress for too long and was stopped."""

    TIMEOUT = "timeout"
    """The worker exceeded a time limit that it had set itself, and the watchdog killed it."""


INTERPRETER_END = "the end of the interpreter"
"""The place of a crash after the program's last line."""

MODULE_START = "python -m"
"""The place of a failure of ``python -m`` that did not find the module."""

COMMAND_LINE = "the command line"
"""The place of a failure of a program that refused its arguments."""

OF_PROGRAM = frozenset(
    {"SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "NoMainGuardError"}
)
"""Exceptions of a program that cannot start."""

INFRASTRUCTURE = frozenset({FailureKind.COMMUNICATION, FailureKind.KILLED, FailureKind.OUT_OF_MEMORY})
"""Kinds that a machine or the network may have caused, so that a short wait before the next attempt helps."""

CONNECTION_ERRORS = frozenset({"ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError"})
"""Exceptions that mean a lost peer, whatever their text is. A broken pipe may also be that of stdout: `diagnose` checks
which line raised it.
"""

PEER_ERRORS = frozenset(
    {
        *("DistBackendError", "DistNetworkError", "DistStoreError", "DistError"),
        *("RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "TimeoutError", "ConnectionError", "OSError"),
    }
)
"""Exceptions that mean a lost peer if their text says so."""

SEARCH_MAX_CHARS = 64 * 1024
"""How much of a text is searched: its head and its tail. A worker may write megabytes."""

_LOST_PEER = re.compile(
    r"connection (?:was )?(?:reset|closed|aborted|lost)|broken pipe|socket (?:closed|is closed|timeout)"
    r"|(?:remote process|peer) (?:exited|closed|has)|closed by (?:the )?(?:remote )?peer"
    r"|failed to recv|recvvalue failed|heartbeat (?:timeout|timed)|missed heartbeats|barrier (?:timed|failed)"
    r"|timed? ?out (?:after )?waiting|wait timeout|timeout waiting|watchdog caught"
    r"|\b(?:unavailable|deadline_exceeded|aborted)\b:",
    re.IGNORECASE,
)

_LIBRARIES = (
    (re.compile(r"\bnccl\b.*", re.IGNORECASE), re.compile(r"error|timeout|abort", re.IGNORECASE)),
    (re.compile(r"\b(?:gloo|collective)\b.*", re.IGNORECASE), re.compile(r"time|abort|error|fail", re.IGNORECASE)),
)
"""A library, with the rest of the line, and what it says there of a lost peer. In one expression, the search would take
quadratic time: a line of 64 KiB that repeats the library's name would take seconds.
"""

_TIMED_OUT = re.compile(r"tim(?:e|ed)[ -]?out|deadline_exceeded", re.IGNORECASE)


def is_lost_peer(exception: str, text: str) -> bool:
    """Whether an exception of this class, with this text, means that a peer went away or does not answer."""
    name = exception.rpartition(".")[2]
    return name in CONNECTION_ERRORS or (name in PEER_ERRORS and says_lost_peer(text))


def says_lost_peer(text: str) -> bool:
    text = clipped(text, SEARCH_MAX_CHARS)
    if _LOST_PEER.search(text) is not None:
        return True
    return any(words.search(line[0]) for library, words in _LIBRARIES for line in library.finditer(text))


def says_timeout(text: str) -> bool:
    """Whether a wait for the lost peer timed out: the peer may be alive and elsewhere."""
    return _TIMED_OUT.search(text) is not None


def is_of_program(exception: str, where: str) -> bool:
    """Whether every worker of the program fails like this on its own: those that failed, too, are no victims."""
    return exception.rpartition(".")[2] in OF_PROGRAM or where in (COMMAND_LINE, MODULE_START)


def cause_of(kinds: Iterable[FailureKind]) -> int:
    """The index of the cause among failures that are in the order in which they became known.

    The cause is the first failure that is not a victim. If all of them lost a peer, it is the first.
    """
    in_order = list(kinds)
    causes = (place for place, kind in enumerate(in_order) if kind is not FailureKind.COMMUNICATION)
    return next(causes, 0)
