"""How a command ends: its exit code, and the last words on stderr.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | workers failed, or nodes could not meet |
| 2 | bad input: a flag, a variable, a script or a directory |
| 128 + n | signal n asked to stop |
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from errno import EMFILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SUCCESS = 0
FAILURE = 1
BAD_INPUT = 2
SIGNAL_BASE = 128

PAGER_PATIENCE_S = 60.0
"""How long a finishing command waits for a blocked console to take the rest of its output: a person may be at a pager.
A command that a signal ends does not wait that long.
"""


def exit_code(command: Callable[[], object], prog: str) -> int:
    """Run `command` and return the exit code of the process.

    Failures that people can act on are explained on stderr, with the prefix `prog`. Our own bugs are raised again, with
    their traceback.
    """
    try:
        command()
        _await_tails()
    except KeyboardInterrupt:
        return _leave_interrupted(prog)
    except Exception as error:
        causes = _causes(error)
        if isinstance(error, RuntimeError) and any(isinstance(cause, KeyboardInterrupt) for cause in causes):
            # Up to Python 3.11, an interruption while a class is made, as by an import, becomes a RuntimeError.
            return _leave_interrupted(prog)
        if any(map(_is_out_of_files, causes)):
            return _leave_out_of_files(prog)
        verdict = _verdict(error, prog)
        if verdict is None:
            raise
        return _leave(*verdict)
    finally:
        _flush_stdout()
    return SUCCESS


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__
    return causes


def _is_out_of_files(error: BaseException) -> bool:
    """Whether this process had no descriptor left; a library that cannot be opened is an ImportError."""
    if isinstance(error, ImportError):
        return os.strerror(EMFILE) in str(error)
    return isinstance(error, OSError) and error.errno == EMFILE


def _leave_out_of_files(prog: str) -> int:
    """Say that the limit of open files is too low. Nothing is imported: there may be no descriptor to read a file."""
    words = (
        f"{prog}: too many open files: this job needs more than its limit allows; raise the limit where the job is "
        "started, for example with ulimit -n 65536\n"
    )
    with suppress(OSError):
        os.write(2, words.encode())
    return FAILURE


def _leave_interrupted(prog: str) -> int:
    import signal

    return _leave(SIGNAL_BASE + signal.SIGINT, f"{prog}: ended by SIGINT")


def _verdict(error: Exception, prog: str) -> tuple[int, str] | None:
    """The exit code and the last message, or None if only a traceback can explain the error."""
    from holdfast.errors.text import visible_line
    from holdfast.errors.tree import Category, HoldfastError, InputError
    from holdfast.processes.interruption import SignalException

    if isinstance(error, InputError):
        return BAD_INPUT, f"{prog}: error: {visible_line(' '.join(str(error).split()))}"
    if isinstance(error, SignalException):
        return SIGNAL_BASE + error.sigval, f"{prog}: ended by {error.sigval.name}"
    if isinstance(error, HoldfastError) and error.category is Category.USER:
        return FAILURE, str(error)
    if isinstance(error, HoldfastError) and error.category is Category.INFRASTRUCTURE:
        return FAILURE, f"{prog}: {type(error).__name__}: {visible_line(str(error))}"
    return None


def _leave(code: int, last_words: str) -> int:
    from holdfast.errors.notice import say

    if code > SIGNAL_BASE:
        say(last_words)  # waits for stderr only briefly: the exit code must be delivered
    else:
        _await_tails()
        say(last_words, PAGER_PATIENCE_S)
    return code


def _await_tails() -> None:
    """Give a slow console time to take the remaining lines of workers."""
    tail = sys.modules.get("holdfast.processes.tail")
    if tail is not None:
        tail.await_laggards(PAGER_PATIENCE_S)


def show(text: str, *, colours: bool = False) -> None:
    """Print `text`, unless its reader has left, as in ``holdfast --help | true``.

    Characters that stdout cannot encode or that could control a terminal are escaped. With `colours`, the codes of
    `holdfast.errors.text.COLOURS` are kept.

    Raises:
        UserError: stdout cannot be written, for example because the disk is full.
    """
    from holdfast.errors.text import painted, visible

    shown = painted(text) if colours else visible(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        pass
    except OSError as error:
        from holdfast.errors.tree import UserError

        raise UserError(f"holdfast: cannot write to stdout: {error.strerror}") from error


def _flush_stdout() -> None:
    """Flush stdout. Errors are ignored: the reader has left, or `show` has reported the error already."""
    try:
        with suppress(AttributeError, ValueError):  # stdout is missing or closed
            sys.stdout.flush()
    except OSError:
        # Discard the buffer, so that the flush at the interpreter's exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
