"""The error handler, which records this process's own failure. A plug-in can replace it."""

from __future__ import annotations

import faulthandler
import os
import time
from contextlib import suppress

from holdfast.errors.child_failed import ChildFailedError
from holdfast.errors.description import describe, type_and_text
from holdfast.errors.error_file import PATH_VARIABLE, read_error_file, spare_path, unreadable, write_error_file
from holdfast.errors.notice import notice
from holdfast.errors.text import REASON_MAX_CHARS, clipped, headline
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


class ErrorHandler:
    """Writes this process's failure to the file that the environment names.

    Subclasses may replace any method. No method raises: the exception being handled is what matters.
    """

    def initialize(self) -> None:
        """Called before the recorded function. Makes a native crash print the stack of every thread.

        An enabled fault handler is left alone: the code that enabled it chose where its output goes.
        """
        if faulthandler.is_enabled():
            return
        # If stderr is closed or is not a real file, as in a notebook, the stacks have nowhere to go.
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
        """Adopt a child's failure: copy its error file to ours, with its exit code if that is not 0.

        If this process has no error file, print the child's message on stderr.
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

        If the message is plain text, the code is stored beside it.
        """
        message = rootcause_error.get("message")
        (message if isinstance(message, dict) else rootcause_error)["errorCode"] = error_code

    def _get_error_file_path(self) -> str | None:
        return os.environ.get(PATH_VARIABLE) or None

    def _write_error_file(self, file_path: str, error_msg: str) -> None:
        try:
            write_error_file(file_path, error_msg)
        except (OSError, ValueError) as problem:
            # The watching process must know the kind of failure: a process that lost its peer is rarely the cause.
            is_known = _leave_word(error_msg)
            how = "the failure is reported all the same" if is_known else "the failure is reported only here"
            notice(f"the error file {file_path!r} was not written, {how}: {problem}")


def _leave_word(error_msg: str) -> bool:
    """Write to the spare file in memory, because the error file cannot be written. False if this fails, too."""
    spare = spare_path(os.environ)
    if not spare:
        return False
    try:
        write_error_file(spare, error_msg)
    except OSError:
        return False
    return True


def get_error_handler() -> ErrorHandler:
    """The handler whose entry point the environment names; otherwise an `ErrorHandler`.

    Entry points are read only if `HANDLER_VARIABLE` is set, because reading them costs each worker 40 ms. If the
    plug-in cannot be used, a notice on stderr says so and the default handler is used.
    """
    name = os.environ.get(HANDLER_VARIABLE)
    if not name:
        return ErrorHandler()
    try:
        return _plugged_in(name)
    except Exception as problem:  # noqa: BLE001 - a plug-in may raise anything and must not end the worker
        reason = headline(type_and_text(problem), REASON_MAX_CHARS)
        notice(f"{HANDLER_VARIABLE}={name}: using the default error handler, because of {reason}")
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
