"""Loggers that cost nothing until they log.

`logging` is imported with the first message that is shown. A healthy job shows none: the level is WARNING unless
``LOGLEVEL`` is set.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from holdfast.errors.notice import notice, written
from holdfast.errors.text import visible, visible_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging

LEVEL_VARIABLE = "LOGLEVEL"
"""The environment variable that sets the level: a name, in any case, or a number."""

ROOT = "holdfast"
"""The root of all our loggers. A program's settings on it apply to each of them."""

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

LEVELS = {
    "CRITICAL": 50,
    "FATAL": 50,
    "ERROR": ERROR,
    "WARNING": WARNING,
    "WARN": WARNING,
    "INFO": INFO,
    "DEBUG": DEBUG,
    "NOTSET": 0,
}

LEVEL_MAX_DIGITS = 9
"""A longer number is not a level."""

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Frames between the caller and logging: debug() and its siblings, then `_log`.
_CALLER_LEVELS_UP = 3


def log_level(default: int = WARNING) -> int:
    """The level in ``LOGLEVEL``; `default` if it is unset or not a level."""
    level = _level(os.environ.get(LEVEL_VARIABLE, ""))
    return default if level is None else level


@cache
def _level(text: str) -> int | None:
    name = text.strip().upper()
    if name in LEVELS:
        return LEVELS[name]
    if name.isascii() and name.isdigit() and len(name) <= LEVEL_MAX_DIGITS:
        return int(name)
    if name:
        notice(f"unknown {LEVEL_VARIABLE} {text!r}, ignored; write one of {', '.join(LEVELS)}, or a number")
    return None


class _Visible:
    """A message argument, escaped so that it cannot control a terminal or add a line to a log.

    Arguments are escaped here and not only in our handler, because a program's own handlers show them, too.
    """

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return visible_line(str(self._value))

    def __repr__(self) -> str:
        return visible_line(repr(self._value))


class Logger:
    """The part of `logging.Logger` that we use, with the same names and %-formatting.

    Messages go to the `logging` logger of the same name, so a program can treat them like any others. Until the program
    configures logging, they go to stderr.
    """

    __slots__ = ("_real", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._real: logging.Logger | None = None

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name in `logging`
        # A program sets levels in `logging`; its import is then already paid for.
        return self._in_logging().isEnabledFor(level) if "logging" in sys.modules else level >= log_level()

    def debug(self, msg: str, *args: object) -> None:
        self._log(DEBUG, msg, args)

    def info(self, msg: str, *args: object) -> None:
        self._log(INFO, msg, args)

    def warning(self, msg: str, *args: object) -> None:
        self._log(WARNING, msg, args)

    def error(self, msg: str, *args: object, cause: BaseException | None = None) -> None:
        """Log an error, with the traceback of `cause` if given."""
        self._log(ERROR, msg, args, cause)

    def exception(self, msg: str, *args: object) -> None:
        """Log an error with the traceback of the exception being handled."""
        self._log(ERROR, msg, args, sys.exception())

    def _log(self, level: int, msg: str, args: tuple[object, ...], cause: BaseException | None = None) -> None:
        if self.isEnabledFor(level):
            shown = (arg if isinstance(arg, (int, float)) else _Visible(arg) for arg in args)
            self._in_logging().log(level, msg, *shown, exc_info=cause, stacklevel=_CALLER_LEVELS_UP)

    def _in_logging(self) -> logging.Logger:
        if self._real is None:
            import logging

            _set_up()
            self._real = logging.getLogger(self.name)
        return self._real


def get_logger(name: str | None = None) -> Logger:
    """The logger `name` below the root logger "holdfast". Without a name, the root logger."""
    if not name or name == ROOT:
        return Logger(ROOT)
    return Logger(name if name.startswith(f"{ROOT}.") else f"{ROOT}.{name}")


@cache
def _set_up() -> None:
    """Set the level and the stderr handler of our root logger, unless the program has done so."""
    import logging

    class ToStderr(logging.Handler):
        unsaid = 0

        def emit(self, record: logging.LogRecord) -> None:
            if logging.getLogger().handlers:
                return  # the program configured logging and gets the message there
            try:
                line = visible(self.format(record))  # the traceback is not an argument, so it is not escaped yet
                if self.unsaid:
                    line = f"({self.unsaid} messages are missing here: the console took nothing)\n{line}"
                if written(sys.stderr, f"{line}\n"):
                    self.unsaid = 0
                else:
                    self.unsaid += 1
            except Exception as problem:
                if hasattr(problem, "sigval"):
                    raise  # a SignalException: not caused by this message
                self.handleError(record)

    root = logging.getLogger(ROOT)
    if root.level == logging.NOTSET:
        root.setLevel(max(log_level(), 1))  # 0 would defer to the loggers above
    if not root.handlers:
        formatter = logging.Formatter(FORMAT)
        formatter.default_msec_format = "%s.%03d"
        handler = ToStderr()
        handler.setFormatter(formatter)
        root.addHandler(handler)
