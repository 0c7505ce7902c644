"""`record`: the decorator that records a main function's failure."""

from __future__ import annotations

from functools import wraps

from holdfast.errors.child_failed import ChildFailedError
from holdfast.errors.description import type_and_text
from holdfast.errors.handler import get_error_handler
from holdfast.errors.notice import notice
from holdfast.errors.summary import gist
from holdfast.errors.text import REASON_MAX_CHARS, headline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    from holdfast.errors.handler import ErrorHandler

    P = ParamSpec("P")
    R = TypeVar("R")


def record(fn: Callable[P, R], error_handler: ErrorHandler | None = None) -> Callable[P, R | None]:
    """Wrap `fn`: an exception that leaves it is written to this process's error file, then raised again.

    - ``sys.exit()`` and ``sys.exit(0)`` inside `fn` make it return None. Any other ``sys.exit`` passes unrecorded: the
      exit code is the message.
    - A `ChildFailedError` passes on the child's own error file, so that the root cause travels up a tree of processes.
      If the child left none, none is written.

    A failing handler never hides the exception. Without `error_handler`, `get_error_handler` provides the handler when
    the function is called.

        @record
        def main(): ...
    """

    @wraps(fn)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        handler = get_error_handler() if error_handler is None else error_handler
        _attempt(handler.initialize)
        try:
            return fn(*args, **kwargs)
        except SystemExit as leaving:
            if _is_success(leaving.code):
                return None
            raise
        except ChildFailedError as failed:
            _attempt(_hand_on, failed, handler)
            raise
        except BaseException as exc:
            _attempt(handler.record_exception, exc)
            raise

    return recorded


def _is_success(code: object) -> bool:
    return code is None or (isinstance(code, int) and code == 0)


def _hand_on(failed: ChildFailedError, handler: ErrorHandler) -> None:
    rank, failure = failed.get_first_failure()
    if failure.has_error_file():
        handler.dump_error_file(failure.error_file, failure.exitcode)
        return
    notice(f"rank {rank} of {failed.name} failed and left no error file: {gist(failure)}")


def _attempt(action: Callable[..., object], *args: object) -> None:
    """Call `action`. Its failure must not affect the user's function or its exception."""
    try:
        action(*args)
    except Exception as problem:  # noqa: BLE001 - a custom handler may raise anything
        name = getattr(action, "__qualname__", type(action).__name__)
        notice(f"the error handler failed in {name}: {headline(type_and_text(problem), REASON_MAX_CHARS)}")
