"""Where events go, by name: nowhere, to the console, or to a handler that was installed or that a program set."""

from __future__ import annotations

import sys

from holdfast.errors.description import type_and_text
from holdfast.errors.notice import notice, written
from holdfast.errors.text import headline
from holdfast.errors.tree import InputError
from holdfast.logger import INFO, log_level

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from holdfast.events.records import AnyEvent

    EventHandler = Callable[[AnyEvent], object]

ENTRY_POINT_GROUP = "holdfast.event_handlers"
"""Where installed handlers are looked for. An entry is a function that takes an event, or a `logging.Handler`; of
a class of either, an instance is made without arguments.
"""

BUILT_IN = ("null", "console", "dynamic_rendezvous")

REASON_MAX_CHARS = 400
"""How much of a handler's exception is told."""


class Guarded:
    """A handler whose failures are told once and harm nobody. Only a signal to stop passes."""

    __slots__ = ("_handler", "_is_told", "_what")

    def __init__(self, what: str, handler: EventHandler) -> None:
        self._what = what
        self._handler = handler
        self._is_told = False

    def __call__(self, event: AnyEvent) -> None:
        try:
            self._handler(event)
        except Exception as problem:
            if hasattr(problem, "sigval"):
                raise  # a SignalException is not the handler's: it came while the handler ran
            if not self._is_told:
                self._is_told = True
                reason = headline(type_and_text(problem), REASON_MAX_CHARS)
                notice(f"{self._what} failed, so events are missing there; said once: {reason}")


def discard(event: AnyEvent) -> None:
    """Do nothing with `event`."""


def _print(event: AnyEvent) -> None:
    """One JSON object in one line on stderr.

    Raises:
        TimeoutError: nobody reads it.
    """
    if not written(sys.stderr, f"{event.serialize()}\n"):
        raise TimeoutError("the console takes nothing")


_handlers: dict[str, EventHandler] = {"null": discard, "dynamic_rendezvous": discard}
"""What was asked for or set so far."""


def event_handler(name: str) -> EventHandler:
    """What to call with each event that goes to `name`; it raises nothing but a signal to stop.

    Events are messages of the level INFO: where ``LOGLEVEL`` is above, they go nowhere.

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
    """Let events that go to `name` go to `handler` from now on, in this process.

    So a program can follow the rendezvous, whose events go to "dynamic_rendezvous".
    """
    _handlers[name] = Guarded(f"the event handler {name!r}", _as_function(name, handler))


def _installed(name: str) -> EventHandler:
    from holdfast.plugins import load_plugin

    def make(loaded: object) -> EventHandler:
        return _as_function(name, loaded() if isinstance(loaded, type) else loaded)

    return load_plugin("--event-log-handler", name, [ENTRY_POINT_GROUP], {*BUILT_IN, *_handlers}, make)


def _as_function(name: str, handler: object) -> EventHandler:
    # Whoever has made a `logging.Handler` has imported `logging`.
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
    """As torch does it: the message is the JSON text. The event itself is the record's attribute `event`."""
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
