"""Uncaught exceptions: from the interpreter's hooks to the error file."""

from __future__ import annotations

import json
import os
import time

from holdfast.errors.child_failed import ChildFailedError
from holdfast.errors.description import describe
from holdfast.errors.error_file import PATH_VARIABLE, THREAD_KEY, written_identity
from holdfast.errors.handler import ErrorHandler, get_error_handler
from holdfast.errors.text import clipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EARLIER_MAX_CHARS = 16_000
"""How much of a thread's traceback stays when the main thread fails later."""


def record_uncaught(exc: BaseException, thread: str, written: dict[str, Any]) -> None:
    """Write `exc` to this process's error file. `thread` is the name of the thread that failed; "" for the main thread.

    A file that other code wrote, such as `record`, is left alone. The first thread to fail is kept until the main
    thread fails; its traceback is then appended. The caller keeps `written`, the state of this process, because the
    program may unload this module.
    """
    path = os.environ.get(PATH_VARIABLE)
    if not path or (thread and "earlier" in written) or written_identity(path) != written.get("identity"):
        return
    handler = get_error_handler()
    if type(handler) is not ErrorHandler:
        handler.record_exception(exc)
    elif isinstance(exc, ChildFailedError) and exc.get_first_failure()[1].has_error_file():
        _, failure = exc.get_first_failure()
        handler.dump_error_file(failure.error_file, failure.exitcode)
    else:
        data = describe(exc, time.time_ns())
        _add_threads(data["message"]["extraInfo"], thread, written)
        handler._write_error_file(path, json.dumps(data))  # noqa: SLF001 - it reports where a write failed
    written["identity"] = written_identity(path)


def _add_threads(info: dict[str, Any], thread: str, written: dict[str, Any]) -> None:
    if thread:
        info[THREAD_KEY] = thread
        info["py_callstack"] = written["earlier"] = f"Exception in thread {thread}:\n{info['py_callstack']}"
    elif "earlier" in written:
        # Mark the lines, so that no parser mistakes their last frame for the exception's.
        earlier = clipped(written["earlier"].rstrip(), EARLIER_MAX_CHARS).replace("\n", "\n> ")
        info["py_callstack"] = f"{info['py_callstack'].rstrip()}\n\nBefore that, a thread had ended:\n> {earlier}\n"
