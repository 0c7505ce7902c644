"""The event log of a run: a file of JSON lines, and the chosen handler.

The first events come before the first worker. Writing them would delay the worker, because it takes an import of
`json`. So a log can hold its events back until there is time.
"""

from __future__ import annotations

import _thread
import os
from collections import deque

from holdfast.events.destinations import Guarded, discard, event_handler
from holdfast.events.records import to_json
from holdfast.events.schema import RecordedEvent
from holdfast.files import open_append

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.events.records import AnyEvent

HELD_MAX_EVENTS = 1000
"""How many events are held back. At this number waiting is pointless, and the log releases itself."""


class EventLog:
    """Writes an agent's events to the file `path`, if that is not empty, and to the handler `destination`.

    A failure of the file or the handler never reaches the caller: it is reported once on stderr. Any thread may write.
    The log belongs to the process that made it: it does nothing in a forked process, so that held events are written
    once.
    """

    def __init__(self, path: str | None, destination: str = "null") -> None:
        self._set_file(path)
        self._to_handler = event_handler(destination)
        self._waiting: deque[AnyEvent | RecordedEvent] = deque()
        self._holds = False
        self._owner_pid = os.getpid()
        # Reentrant: a signal handler may write an event while the same thread is writing one.
        self._lock = _thread.RLock()

    def _set_file(self, path: str | None) -> None:
        self._file = _EventFile(path) if path else None
        self._to_file = Guarded(f"the event log {path!r}", self._file.append if self._file else discard)

    def move(self, path: str, opening: Iterable[RecordedEvent]) -> None:
        """Continue in the file `path`, which begins with `opening`. Held events follow it."""
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            if self._file:
                self._file.close()
            self._set_file(path)
            self._waiting.extendleft(reversed(list(opening)))
            if not self._holds:
                self.release()

    def hold(self) -> None:
        """Hold back events until `release`, `close`, or `HELD_MAX_EVENTS`."""
        self._holds = True

    def write(self, event: AnyEvent | RecordedEvent) -> None:
        """Write `event`, which must not change after this. A `RecordedEvent` goes to the file only.

        A handler is made for torch's events.
        """
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self._waiting.append(event)
            if not self._holds or len(self._waiting) >= HELD_MAX_EVENTS:
                self.release()

    def release(self) -> None:
        """Write the held events, and from now on each event immediately."""
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self._holds = False
            # Pop one event at a time: after an interrupting signal the rest is written next time, and no event twice.
            while self._waiting:
                event = self._waiting.popleft()
                self._to_file(event)
                if not isinstance(event, RecordedEvent):
                    self._to_handler(event)

    def close(self) -> None:
        """Write the held events and close the file. A later event opens it again."""
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self.release()
            if self._file:
                self._file.close()


class _EventFile:
    """A file to which each event is appended as a line in one write, so that concurrent writers do not mix lines."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._ends_within_a_line = False

    def append(self, event: AnyEvent | RecordedEvent) -> None:
        line = to_json(event.fields() | {"timestamp": event.timestamp}).encode() + b"\n"
        if self._fd is None:
            self._fd = open_append(self._path)  # workers run by then and may have put a pipe there
        rest = b"\n" + line if self._ends_within_a_line else line
        while rest:
            # A partial write means a full disk; the next attempt then raises the error.
            rest = rest[os.write(self._fd, rest) :]
            self._ends_within_a_line = bool(rest)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
