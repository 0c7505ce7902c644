"""Diagnose a failed process: how it failed, where, and why."""

from __future__ import annotations

import os
import re
import signal

from holdfast.errors.error_file import thread_in
from holdfast.errors.kind import (
    COMMAND_LINE,
    INTERPRETER_END,
    MODULE_START,
    FailureKind,
    is_lost_peer,
    says_lost_peer,
)
from holdfast.errors.text import encodable, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.errors.error_file import ErrorReport

NOT_AVAILABLE = "<N/A>"

SHELL_SIGNAL_BASE = 128
"""A shell whose command died of signal n exits with this plus n."""

TAIL_MAX_LINES = 20
"""How many of the last lines of stderr a failure shows."""

TAIL_MAX_CHARS = 4_000
"""How many characters of those lines a failure shows."""

TAIL_SEARCH_MAX_CHARS = 64_000
"""How many characters of stderr are searched for those lines: a progress bar is many frames and a single line."""

SOURCE_LINE_MAX_CHARS = 1_000
"""How much of a line is searched for what it does, or for the name of an exception. A worker may write megabytes."""

STACKS_MAX_CHARS = 16_000
"""How much of a native crash's stacks a failure shows: the beginning, with the thread that crashed."""

CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})

LIBRARIES = (
    *("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>"),
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
)
"""Paths of files that are rarely the user's own code."""

_FRAME = re.compile(r'^[|+ \t-]*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$', re.MULTILINE)
_LAST_LINE = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?::(?: (?P<text>.*))?)?$")
_PRINTS = re.compile(
    r"(?:\b|_)print\((?!.*\bfile ?=(?! ?(?:sys\.)?std(?:out|err)\b))"
    r"|\bstd(?:out|err)(?:\.buffer)?\.(?:write|writelines|flush)\("
)
_NO_FRAME = "<no Python frame>"
_TRACEBACK = "Traceback (most recent call last):"
_CRASHED_THREAD = "Current thread 0x"
_CRASH = "Fatal Python error"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)  # torch prefixes every line of a traceback with it
_NO_MODULE = re.compile(
    r"\S.*: (?:No module named \S.*|Error while finding module specification for '.*' \(ModuleNotFoundError: .*)"
)
"""The complete output of ``python -m`` for a module that it does not find: the interpreter's path, and why."""

_OWN_NOTICE = "holdfast: "
_USAGE_ERROR = 2


class Evidence:
    """What the watching process knows in addition to the error file.

    Attributes:
        stderr: the end of the process's stderr.
        stacks: what faulthandler wrote when the process crashed.
        max_rss_kib: its peak memory; 0 if unknown.
        out_of_memory: why the kernel's out-of-memory killer is to blame, as a sentence; "" if it is not.
        log_file: the file with all of its stderr; "" if that went to a console.
        spare_file: where the process may have written its report if the error file could not be written; "" for
            nowhere.
        exited_at: when it ended, in Unix seconds; 0 if unknown.
        ran_s: how long it had run; 0 if unknown.
        killed_with_keeper: that it was killed with its keeper, as a sentence; "" if it was not.
    """

    __slots__ = (
        *("exited_at", "killed_with_keeper", "log_file", "max_rss_kib", "out_of_memory"),
        *("ran_s", "spare_file", "stacks", "stderr"),
    )

    def __init__(
        self,
        stderr: str = "",
        stacks: str = "",
        max_rss_kib: int = 0,
        out_of_memory: str = "",
        log_file: str = "",
        spare_file: str = "",
        exited_at: float = 0.0,
        ran_s: float = 0.0,
        killed_with_keeper: str = "",
    ) -> None:
        self.stderr = stderr
        self.stacks = stacks
        self.max_rss_kib = max_rss_kib
        self.out_of_memory = out_of_memory
        self.log_file = log_file
        self.spare_file = spare_file
        self.exited_at = exited_at
        self.ran_s = ran_s
        self.killed_with_keeper = killed_with_keeper


class Diagnosis:
    """How a process failed: its kind, the text for people, the line of the user's code, and the exception's class."""

    __slots__ = ("exception", "kind", "message", "where")

    def __init__(self, kind: FailureKind, message: str, where: str = "", exception: str = "") -> None:
        self.kind = kind
        self.message = message
        self.where = where
        self.exception = exception


def diagnose(exit_code: int, pid: int, report: ErrorReport | None, evidence: Evidence) -> Diagnosis:
    """Diagnose a failed process. Pure."""
    if report is not None and exit_code < 0 and thread_in(report.data):
        # The process survived that thread's exception; the signal is what ended it.
        found = _signalled(-exit_code, pid, evidence)
        found.message += f"\nBefore that, {report.message.strip()}"
        return found
    if report is not None:
        return _raised(report.message, stated(report))
    if exit_code < 0:
        return _signalled(-exit_code, pid, evidence)
    told = _traceback_in(evidence.stderr) if exit_code == 1 else ""
    if told:
        return _raised(told, _exception_line(told))
    said = evidence.stderr.strip()
    if exit_code == 1 and len(said) <= TAIL_MAX_CHARS and _NO_MODULE.fullmatch(said):
        return Diagnosis(FailureKind.EXCEPTION, visible(said), MODULE_START, "ModuleNotFoundError")
    where = COMMAND_LINE if is_usage_error(exit_code, evidence.stderr) else ""
    return Diagnosis(FailureKind.EXIT, _exit_message(exit_code, pid, evidence), where)


def is_usage_error(exit_code: int, stderr: str) -> bool:
    """Whether a program rejected its arguments, as argparse does."""
    return exit_code == _USAGE_ERROR and "usage:" in stderr.lower() and "error:" in stderr


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return NOT_AVAILABLE


def stated(report: ErrorReport) -> str:
    """The short message of an error file: the class and text of an exception."""
    message = report.data.get("message")
    text = message.get("message") if isinstance(message, dict) else message
    return encodable(text) if isinstance(text, str) else report.message


def where_in(text: str) -> str:
    """The innermost frame of the user's own code in a traceback or in stacks: "train.py:12 in step"."""
    # If there are stacks of several threads, use those of the thread that crashed.
    crashed = text.find(_CRASHED_THREAD)
    if crashed >= 0:
        text = text[crashed:].partition("\n\n")[0]
    frames = list(_FRAME.finditer(text))
    if not frames:
        return ""
    if _TRACEBACK in text or "most recent call first" not in text:
        frames.reverse()
    own = next((frame for frame in frames if not any(part in frame["file"] for part in LIBRARIES)), frames[0])
    function = own["function"]
    return f"{own['file']}:{own['line']}" + (f" in {function}" if function else "")


def _raised(text: str, line: str) -> Diagnosis:
    found = _LAST_LINE.match(line.partition("\n")[0].strip()[:SOURCE_LINE_MAX_CHARS])
    exception = found["name"] if found else ""
    is_victim = is_lost_peer(exception, line) and not (exception == "BrokenPipeError" and _is_printing(text))
    kind = FailureKind.COMMUNICATION if is_victim else FailureKind.EXCEPTION
    return Diagnosis(kind, text, where_in(text), exception)


def _is_printing(traceback: str) -> bool:
    """Whether the innermost line of a traceback writes to stdout or stderr, not to a socket or another file."""
    end = max((frame.end() for frame in _FRAME.finditer(traceback)), default=None)
    if end is None:
        return False
    source = traceback[end:].lstrip("\n").partition("\n")[0].strip()
    return _PRINTS.search(source[:SOURCE_LINE_MAX_CHARS]) is not None


def _signalled(number: int, pid: int, evidence: Evidence) -> Diagnosis:
    message = f"Signal {number} ({signal_name(number)}) received by PID {pid}"
    if evidence.out_of_memory:
        return Diagnosis(FailureKind.OUT_OF_MEMORY, f"{message}: {evidence.out_of_memory}{_peak(evidence)}")
    if number not in CRASH_SIGNALS:
        return Diagnosis(FailureKind.KILLED, message + _tail(evidence.stderr))
    kind = FailureKind.CRASH
    if number == signal.SIGABRT and says_lost_peer(evidence.stderr):
        kind = FailureKind.COMMUNICATION
    stacks, said = evidence.stacks, evidence.stderr
    if not stacks:
        # The program's own fault handler may have replaced ours and written to stderr.
        said, found, stacks = said.rpartition(f"{_CRASH}: ")
        said, stacks = (said, found + stacks) if found else (stacks, "")
    stacks = _crashed_first(stacks.strip())
    where = where_in(stacks) or (INTERPRETER_END if _NO_FRAME in stacks else "")
    if len(stacks) > STACKS_MAX_CHARS:
        stacks = f"{stacks[:STACKS_MAX_CHARS]}\n..."
    return Diagnosis(kind, "\n".join([message, *([stacks] if stacks else [])]) + _tail(said), where)


def _crashed_first(stacks: str) -> str:
    """Move the crashed thread before the others: there may be too many stacks to show."""
    what, *threads = stacks.split("\n\n")
    return "\n\n".join([what, *sorted(threads, key=lambda thread: not thread.startswith(_CRASHED_THREAD))])


def _exit_message(exit_code: int, pid: int, evidence: Evidence) -> str:
    name = signal_name(exit_code - SHELL_SIGNAL_BASE)
    hint = "" if name == NOT_AVAILABLE else f" (as a shell reports {name})"
    message = f"PID {pid} exited with code {exit_code}{hint} and recorded no Python exception."
    tail = _tail(evidence.stderr)
    if tail:
        return message + tail
    return f"{message}\nIt called sys.exit or os._exit, or is not a Python program, and its stderr was empty."


def _peak(evidence: Evidence) -> str:
    if not evidence.max_rss_kib:
        return ""
    return f"; its peak memory was {evidence.max_rss_kib / 1024:,.0f} MiB"


def _tail(stderr: str) -> str:
    """The last lines of stderr, under a heading of their own."""
    lines = stderr[-TAIL_SEARCH_MAX_CHARS:].rstrip().split("\n")[-TAIL_MAX_LINES:]
    if lines == [""]:
        return ""
    # Keep only the last frame of a progress bar. Cut afterwards: the frames may be longer than the cut.
    frames = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    shown = visible(frames[-TAIL_MAX_CHARS:]).split("\n")
    return "\n".join(["\nThe last lines of its stderr:", *(f"  {line}".rstrip() for line in shown)])


def _traceback_in(stderr: str) -> str:
    """The traceback at the end of stderr, if any. For a process that could not write its error file."""
    lines = _RANK_PREFIX.sub("", stderr).rstrip().split("\n")
    while lines and lines[-1].startswith(_OWN_NOTICE):  # the notice that the error file was not written
        lines.pop()
    text = "\n".join(lines).rstrip()
    last_line = _LAST_LINE.match(_exception_line(text))
    begin = text.rfind(_TRACEBACK)
    if begin < 0:
        # A script that does not compile has no frames.
        begin = text.rfind('  File "')
        is_syntax = last_line is not None and last_line["name"] in ("SyntaxError", "IndentationError", "TabError")
        return text[begin:] if begin >= 0 and is_syntax else ""
    while (earlier := text.rfind(_TRACEBACK, 0, begin)) >= 0 and _is_chained(text[earlier:begin]):
        begin = earlier
    return text[begin:] if last_line is not None else ""


def _exception_line(traceback: str) -> str:
    """The last line that is not indented: the exception. Its message may go on in indented lines."""
    return next((line for line in reversed(traceback.split("\n")) if line.strip() and not line[0].isspace()), "")


def _is_chained(between: str) -> bool:
    return between.rstrip().endswith(("direct cause of the following exception:", "another exception occurred:"))
