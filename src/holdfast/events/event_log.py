"""The events of a run: kept in a file of JSON lines, and handed to the handler that was chosen.

The first events come before the first worker, and no worker should start later because an event had to be written:
that takes an import of `json`. So a log can hold its events back until there is time.
"""

from __future__ import annotations

import _thread
import os
from collections import deque

from holdfast.events.destinations import Guarded, discard, event_handler
from holdfast.events.records import to_json
from holdfast.files import open_append

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.events.records import AnyEvent

HELD_MAX_EVENTS = 1000
"""How many events are held back: with so many, waiting has lost its point, and the log releases itself."""

FILE_MODE = 0o644


class EventLog:
    """Where an agent's events go: to the file `path`, if that is not empty, and to the handler `destination`.

    Nothing that befalls the file or the handler befalls the caller: it is told once on stderr. Any thread may
    write. The log belongs to the process that made it: in a forked one it does nothing, so that what is held back is
    written once.
    """

    def __init__(self, path: str | None, destination: str = "null") -> None:
        self._file = _EventFile(path) if path else None
        self._to_file = Guarded(f"the event log {path!r}", self._file.append if self._file else discard)
        self._to_handler = event_handler(destination)
        self._waiting: deque[tuple[AnyEvent, bool]] = deque()
        self._holds = False
        self._owner_pid = os.getpid()
        # Reentrant: a signal handler may write an event while the same thread does.
        self._lock = _thread.RLock()

    def hold(self) -> None:
        """Keep the events that come until `release`, `close`, or too many of them."""
        self._holds = True

    def write(self, event: AnyEvent, *, to_handler: bool = True) -> None:
        """Take in `event`, which must not be changed from here on. It may be one for the file alone."""
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self._waiting.append((event, to_handler))
            if not self._holds or len(self._waiting) >= HELD_MAX_EVENTS:
                self.release()

    def release(self) -> None:
        """Write what was held back, and from now on each event as it comes."""
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self._holds = False
            # One by one off the queue: a signal that interrupts leaves the rest for the next time, none comes twice.
            while self._waiting:
                event, to_handler = self._waiting.popleft()
                self._to_file(event)
                if to_handler:
                    self._to_handler(event)

    def close(self) -> None:
        """Write what was held back, and close the file. An event that comes later opens it again."""
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self.release()
            if self._file:
                self._file.close()


class _EventFile:
    """A file to which whole lines are appended, each in one write, so that several writers do not mix theirs."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._ends_within_a_line = False

    def append(self, event: AnyEvent) -> None:
        line = to_json(event.fields() | {"timestamp": event.timestamp}).encode() + b"\n"
        if self._fd is None:
            self._fd = open_append(self._path, FILE_MODE)  # workers run by then, and may have put a pipe there
        rest = b"\n" + line if self._ends_within_a_line else line
        while rest:
            # Less than all of it is written where the disk is full; the next attempt then says so.
            rest = rest[os.write(self._fd, rest) :]
            self._ends_within_a_line = bool(rest)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
