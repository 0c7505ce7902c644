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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SUCCESS = 0
FAILURE = 1
BAD_INPUT = 2
SIGNAL_BASE = 128

PAGER_PATIENCE_S = 60.0
"""How long a command that ends by itself waits for a console that takes nothing of what is still to be shown: a person
may be at a pager. One that a signal ends does not.
"""


def exit_code(command: Callable[[], object], prog: str) -> int:
    """Do `command`, and return the exit code of the process.

    What it raises is explained on stderr in the name of `prog`, if it is a failure that people can do something
    about. A bug of ours is raised again, with its traceback.
    """
    try:
        command()
        _await_tails()
    except KeyboardInterrupt:
        import signal

        return _leave(SIGNAL_BASE + signal.SIGINT, f"{prog}: ended by SIGINT")
    except Exception as error:
        verdict = _verdict(error, prog)
        if verdict is None:
            raise
        return _leave(*verdict)
    finally:
        _flush_stdout()
    return SUCCESS


def _verdict(error: Exception, prog: str) -> tuple[int, str] | None:
    """The exit code and the last words, or None for what only its traceback can explain."""
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
        say(last_words)  # whatever has become of stderr, the exit code is to be told
    else:
        _await_tails()
        say(last_words, PAGER_PATIENCE_S)
    return code


def _await_tails() -> None:
    """Let a slow console have the lines of workers that it has not taken yet."""
    tail = sys.modules.get("holdfast.processes.tail")
    if tail is not None:
        tail.await_laggards(PAGER_PATIENCE_S)


def show(text: str, *, colours: bool = False) -> None:
    """Print `text`, unless its reader has left, as in ``holdfast --help | true``. What stdout cannot encode is escaped,
    and so is what could steer a terminal. With `colours`, the codes of `holdfast.errors.text.COLOURS` are let through.

    Raises:
        UserError: it cannot be written; the disk is full, say.
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

        raise UserError(f"holdfast: stdout cannot be written: {error.strerror}") from error


def _flush_stdout() -> None:
    """Bring out what was printed, unless its reader has left, or whoever printed it knows that it cannot be."""
    try:
        with suppress(AttributeError, ValueError):  # no stdout, or a closed one
            sys.stdout.flush()
    except OSError:
        # What is still in the buffer goes nowhere, instead of failing again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
