"""Event destinations by name: nowhere, the console, an installed handler, or one that the program set."""

from __future__ import annotations

import sys

from holdfast.errors.description import type_and_text
from holdfast.errors.notice import notice, written
from holdfast.errors.text import REASON_MAX_CHARS, headline
from holdfast.errors.tree import InputError
from holdfast.logger import INFO, log_level

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from typing import Any

    from holdfast.events.records import AnyEvent

    EventHandler = Callable[[AnyEvent], object]

ENTRY_POINT_GROUP = "holdfast.event_handlers"
"""The entry point group of installed handlers. An entry is a function that takes an event, a `logging.Handler`, or a
class of either, which is instantiated without arguments.
"""

BUILT_IN = ("null", "console", "dynamic_rendezvous")


class Guarded:
    """Wraps a handler: its first failure is reported, none reaches the caller. Only a `SignalException` passes."""

    __slots__ = ("_handler", "_is_told", "_what")

    def __init__(self, what: str, handler: Callable[[Any], object]) -> None:
        self._what = what
        self._handler = handler
        self._is_told = False

    def __call__(self, event: Any) -> None:
        try:
            self._handler(event)
        except Exception as problem:
            if hasattr(problem, "sigval"):
                raise  # a SignalException is not the handler's failure: it arrived while the handler ran
            if not self._is_told:
                self._is_told = True
                reason = headline(type_and_text(problem), REASON_MAX_CHARS)
                notice(f"{self._what} failed, and events are missing there (shown once): {reason}")


def discard(event: AnyEvent) -> None:
    """Do nothing with `event`."""


def _print(event: AnyEvent) -> None:
    """Print the event on stderr as one line of JSON.

    Raises:
        TimeoutError: stderr is blocked, because nobody reads it.
    """
    if not written(sys.stderr, f"{event.serialize()}\n"):
        raise TimeoutError("the console does not accept output")


_handlers: dict[str, EventHandler] = {"null": discard, "dynamic_rendezvous": discard}
"""The handlers requested or set so far."""


def event_handler(name: str) -> EventHandler:
    """The function to call with each event for `name`. It raises nothing but a `SignalException`.

    Events have the level INFO. If ``LOGLEVEL`` is higher, they are discarded.

    Raises:
        InputError: there is no handler of that name, or it cannot be loaded.
    """
    handler = _handlers.get(name)
    if handler is None:
        made = _print if name == "console" else _installed(name)
        guarded = Guarded(f"the event handler {name!r}", made) if log_level(INFO) <= INFO else discard
        handler = _handlers.setdefault(name, guarded)
    return handler


def set_event_handler(name: str, handler: EventHandler | logging.Handler) -> None:
    """Send events for `name` to `handler` from now on, in this process.

    For example, a program can follow the rendezvous, whose events go to "dynamic_rendezvous".
    """
    _handlers[name] = Guarded(f"the event handler {name!r}", _as_function(name, handler))


def _installed(name: str) -> EventHandler:
    from holdfast.plugins import load_plugin

    def make(loaded: object) -> EventHandler:
        return _as_function(name, loaded() if isinstance(loaded, type) else loaded)

    return load_plugin("--event-log-handler", name, [ENTRY_POINT_GROUP], {*BUILT_IN, *_handlers}, make)


def _as_function(name: str, handler: object) -> EventHandler:
    # If `handler` is a `logging.Handler`, `logging` is imported already.
    logging = sys.modules.get("logging")
    if logging is not None and isinstance(handler, logging.Handler):
        return _through_logging(handler)
    if callable(handler):
        return handler
    raise InputError(
        f"--event-log-handler {name!r} is a {type(handler).__name__}; "
        "it must be a function that takes an event, or a logging.Handler"
    )


def _through_logging(handler: logging.Handler) -> EventHandler:
    """Make a function of a `logging.Handler`. As in torch, the message is the JSON text.

    The event itself is the record's attribute `event`.
    """
    from logging import makeLogRecord

    def handle(event: AnyEvent) -> None:
        record = makeLogRecord(
            {
                "name": "holdfast.events",
                "levelno": INFO,
                "levelname": "INFO",
                "msg": event.serialize(),
                "created": event.timestamp,
                "msecs": event.timestamp % 1 * 1000,
                "event": event,
            }
        )
        if record.levelno >= handler.level:
            handler.handle(record)

    return handle
