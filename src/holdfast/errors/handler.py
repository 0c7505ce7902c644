"""How a process records its own failure, and how that can be replaced."""

from __future__ import annotations

import faulthandler
import os
import time
from contextlib import suppress

from holdfast.errors.child_failed import ChildFailedError
from holdfast.errors.description import describe, type_and_text
from holdfast.errors.error_file import PATH_VARIABLE, read_error_file, spare_path, unreadable, write_error_file
from holdfast.errors.notice import notice
from holdfast.errors.text import clipped, headline
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HANDLER_VARIABLE = "HOLDFAST_ERROR_HANDLER"
"""The environment variable that names the entry point to use in place of `ErrorHandler`."""

HANDLER_GROUP = "holdfast.error_handlers"
"""The entry point group; each entry is an `ErrorHandler` class, or a function that returns an instance."""

NOTICE_MAX_CHARS = 8_000
"""How much of an error file's message is shown on stderr."""

REASON_MAX_CHARS = 400
"""How much of the reason why a plug-in cannot be used."""


class ErrorHandler:
    """Writes this process's failure to the file that the environment names.

    Subclasses may replace any method. None of them raises: the exception being handled is what matters.
    """

    def initialize(self) -> None:
        """Called before the recorded function: from then on, a native crash shows the stack of every thread.

        A fault handler that is already on was set up by someone who knows better where its output goes.
        """
        if faulthandler.is_enabled():
            return
        # Where stderr is closed or is not a real file, as in a notebook, the stacks have no place to go.
        with suppress(Exception):
            faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        """Write `e` to this process's error file, if it has one."""
        path = self._get_error_file_path()
        if path is None:
            return
        data = describe(e, time.time_ns())
        if isinstance(e, ChildFailedError):
            _, failure = e.get_first_failure()
            data["message"]["errorCode"] = failure.exitcode
        self._write_error_file(path, _encode(data))

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Make the failure of a child this process's own: copy its error file, with its exit code if not 0.

        Without an error file of our own, the child's goes to stderr in readable form.
        """
        now = time.time()
        report = read_error_file(rootcause_error_file, now)
        if report is None:
            report = unreadable(rootcause_error_file, "does not exist", now)
        path = self._get_error_file_path()
        if path is None:
            notice(
                f"{rootcause_error_file} is not copied: this process has no error file of its own "
                f"({PATH_VARIABLE} is not set). It says:\n{clipped(report.message, NOTICE_MAX_CHARS)}"
            )
            return
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, report.data, error_code)
        if previous := read_error_file(path, now):
            notice(f"{path} is replaced. It said:\n{clipped(previous.message, NOTICE_MAX_CHARS)}")
        self._write_error_file(path, _encode(report.data))

    def override_error_code_in_rootcause_data(
        self,
        rootcause_error_file: str,  # noqa: ARG002 - for subclasses
        rootcause_error: dict[str, Any],
        error_code: int = 0,
    ) -> None:
        """Put `error_code` into the object read from `rootcause_error_file`.

        A message that is plain text has no room inside; the code then stands beside it.
        """
        message = rootcause_error.get("message")
        (message if isinstance(message, dict) else rootcause_error)["errorCode"] = error_code

    def _get_error_file_path(self) -> str | None:
        return os.environ.get(PATH_VARIABLE) or None

    def _write_error_file(self, file_path: str, error_msg: str) -> None:
        try:
            write_error_file(file_path, error_msg)
        except (OSError, ValueError) as problem:
            # Whoever watches must know what this was: a process that lost its peer is nobody's cause.
            is_known = _leave_word(error_msg)
            how = "what it would say is known all the same" if is_known else "the failure is told here only"
            notice(f"the error file {file_path!r} was not written, {how}: {problem}")


def _leave_word(error_msg: str) -> bool:
    """Write to memory what the disk has no room for. False if there is no place for it."""
    spare = spare_path(os.environ)
    if not spare:
        return False
    try:
        write_error_file(spare, error_msg)
    except OSError:
        return False
    return True


def get_error_handler() -> ErrorHandler:
    """The handler that the environment asks for by the name of an entry point; otherwise an `ErrorHandler`.

    The entry points are read only if `HANDLER_VARIABLE` is set, since reading them costs each worker 40 ms.
    A plug-in that cannot be used is reported on stderr, and the default takes its place.
    """
    name = os.environ.get(HANDLER_VARIABLE)
    if not name:
        return ErrorHandler()
    try:
        return _plugged_in(name)
    except Exception as problem:  # noqa: BLE001 - a plug-in may do anything and must not end the worker
        reason = headline(type_and_text(problem), REASON_MAX_CHARS)
        notice(f"{HANDLER_VARIABLE}={name}: the default error handler is used instead, because of {reason}")
        return ErrorHandler()


def _plugged_in(name: str) -> ErrorHandler:
    from importlib.metadata import entry_points

    found = entry_points(group=HANDLER_GROUP, name=name)
    if not found:
        raise InputError(f"no installed package has an entry point {name!r} in the group {HANDLER_GROUP!r}")
    handler = next(iter(found)).load()()
    if not isinstance(handler, ErrorHandler):
        raise InputError(f"the entry point {name!r} made a {type(handler).__name__}, not an ErrorHandler")
    return handler


def _encode(data: dict[str, Any]) -> str:
    import json

    return json.dumps(data)
