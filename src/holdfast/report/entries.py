"""The readable lines of an event log. Reading never fails."""

from __future__ import annotations

import json
import math
import os
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct

from holdfast.errors.text import clipped
from holdfast.errors.tree import InputError
from holdfast.events.schema import OPENING_LINE_MAX_BYTES, AttemptStarted, RunStarted
from holdfast.files import open_regular
from holdfast.report.reading import event_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.events.schema import RunEvent
    from holdfast.run_directory import RunDirectory

LINE_MAX_BYTES = 4_000_000
"""A longer line is not ours."""

LOG_MAX_BYTES = 64 << 20
"""How much of a log is read: enough for thousands of failed attempts. A sparse file can be larger than any disk."""

LOG_MAX_LINES = 200_000
"""How many lines of a log are read. A line of 13 bytes takes 200 bytes of memory as an event."""

LISTED_MAX_BYTES = 1 << 20
"""How much of a log is read for a listing: the beginning and the end of a longer one."""

TEXT_MAX_CHARS = 20_000
"""How much of a text is kept: its head and its tail."""

LIST_MAX_ITEMS = 100_000
"""How many items of a list, such as the ranks, are kept."""

NUMBER_MAX = 1e15
"""Numbers of a larger magnitude are invalid, and some do not fit into a float."""

PEEK_MAX_LINES = 20
"""How many lines are read to identify a log. The first attempt is within them: it is written with earlier events."""

PEEK_MAX_BYTES = 4 << 20
"""How many bytes are read to identify a log, with lines that are skipped: an earlier version wrote all of a command,
which may have 2 MiB.
"""

SKIPPED_BYTES = 1 << 20
"""How much of a line that is too long is read at a time."""

ID_MAX_CHARS = 64
"""How much of a job's or an agent's id is kept."""

TORCH_PREFIX = "torchelastic.worker.status."

_KEPT_VALUES = (
    *("run_id", "hostname", "group_rank", "monotonic", "role", "rdzv_backend", "state"),
    *("agent_restarts", "global_rank", "raw_error", "metadata"),
)
"""What is kept of an event's metadata. What nobody reads is dropped, because it may be large."""

_KEPT_DETAILS = (
    *("group_world_size", "role_world_size", "local_rank", "worker_pid", "exit_code"),
    *("message", "extraInfo", "py_callstack"),
)
"""What is kept of the objects in the metadata of torch's events."""

_KEPT_DEPTH = 3


class Facts:
    """Values by name that may be missing or of any type. Each method returns a value of the expected type."""

    __slots__ = ("_values",)

    def __init__(self, values: Any) -> None:
        self._values = values if isinstance(values, dict) else {}

    def text(self, name: str) -> str:
        value = self._values.get(name)
        return clipped(value, TEXT_MAX_CHARS) if isinstance(value, str) else ""

    def number(self, name: str, default: float = 0.0) -> float:
        value = self.number_or_none(name)
        return default if value is None else value

    def number_or_none(self, name: str) -> float | None:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if abs(value) < NUMBER_MAX and math.isfinite(value) else None

    def integer(self, name: str, default: int = 0) -> int:
        value = self.number_or_none(name)
        return default if value is None else int(value)

    def integer_or_none(self, name: str) -> int | None:
        value = self.number_or_none(name)
        return None if value is None else int(value)

    def integers(self, name: str) -> list[int]:
        return [int(each) for each in self._list(name) if type(each) is int and abs(each) < NUMBER_MAX]

    def texts(self, name: str) -> list[str]:
        return [clipped(each, TEXT_MAX_CHARS) for each in self._list(name) if isinstance(each, str)]

    def facts(self, name: str) -> Facts:
        """The object `name`, which may also be written as a JSON string."""
        value = self._values.get(name)
        return Facts(_parsed(value) if isinstance(value, str) else value)

    def _list(self, name: str) -> list[Any]:
        value = self._values.get(name)
        return value[:LIST_MAX_ITEMS] if isinstance(value, list) else []

    def only(self, names: Iterable[str]) -> Facts:
        """The texts, numbers and lists of numbers of these names, and `_KEPT_DETAILS` of objects."""
        return Facts(self._only(names, _KEPT_DEPTH))

    def _only(self, names: Iterable[str], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name in names:
            value = self._values.get(name)
            if isinstance(value, str):
                kept[name] = clipped(value, LINE_MAX_BYTES)
            elif isinstance(value, int | float):
                kept[name] = value
            elif isinstance(value, list):
                kept[name] = self.integers(name)
            elif isinstance(value, dict) and depth:
                kept[name] = Facts(value)._only(_KEPT_DETAILS, depth - 1)  # noqa: SLF001 - of its own class
        return kept

    def __bool__(self) -> bool:
        return bool(self._values)


class Entry(Struct):
    """One event. `event` is what it says if it is our own and this version knows it; all have `metadata`."""

    name: str
    source: str
    timestamp: float
    metadata: Facts
    event: RunEvent | None = None

    @property
    def monotonic(self) -> float | None:
        return self.metadata.number_or_none("monotonic")


class Log(Struct):
    """The entries of a log, and the number of unreadable lines."""

    entries: list[Entry]
    skipped_lines: int = 0
    read_bytes: int = 0
    read_lines: int = 0
    is_cut: bool = False
    """Whether the log is longer than its limit in bytes or lines: the rest was not read."""


def parse_line(line: bytes) -> Entry | None:
    """The event on a line, or None if there is none. Newer versions may write events that this one does not know."""
    fields = _parsed(line)
    if not isinstance(fields, dict):
        return None
    facts = Facts(fields)
    name = facts.text("name")
    if not name:
        return None
    metadata = facts.facts("metadata")
    # In the first format, the details are JSON in a string, which `facts` reads as well.
    event = event_in(name, metadata.facts("details"))
    return Entry(name, facts.text("source"), facts.number("timestamp"), metadata.only(_KEPT_VALUES), event)


def read_log(run: RunDirectory) -> Log:
    """The event log in a run's directory, from its beginning up to `LOG_MAX_BYTES` and `LOG_MAX_LINES`.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    log = Log([])
    with _opened(run) as file:
        _take_lines(log, file, LOG_MAX_BYTES)
        log.is_cut = bool(file.read(1))
    return log


def skim_log(run: RunDirectory) -> Log:
    """The event log in a run's directory; only its beginning and its end if it is longer than `LISTED_MAX_BYTES`.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    log = Log([])
    with _opened(run) as file:
        size = os.fstat(file.fileno()).st_size
        log.is_cut = size > LISTED_MAX_BYTES
        if not log.is_cut:
            _take_lines(log, file, LISTED_MAX_BYTES)
            return log
        half = LISTED_MAX_BYTES // 2
        head = file.read(half)
        _take_lines(log, BytesIO(head[: head.rfind(b"\n") + 1]), half)
        file.seek(size - half)
        tail = file.read(half)
        _take_lines(log, BytesIO(tail[tail.find(b"\n") + 1 :]), half)
    return log


@contextmanager
def _opened(run: RunDirectory) -> Iterator[BinaryIO]:
    try:
        with open(open_regular(run.events), "rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"{run.events!r} cannot be read: {error.strerror or 'it does not exist'}") from error


def _take_lines(log: Log, file: BinaryIO, left: int) -> None:
    """Add the lines of the next `left` bytes to `log`, while it has fewer than `LOG_MAX_LINES`."""
    while left > 0 and log.read_lines < LOG_MAX_LINES and (line := file.readline(min(LINE_MAX_BYTES, left))):
        _take(log, line)
        log.read_lines += 1
        while True:
            left -= len(line)
            log.read_bytes += len(line)
            if left <= 0 or not line or line.endswith(b"\n"):
                break
            line = file.readline(min(LINE_MAX_BYTES, left))  # the rest of a line that is too long


class Identity(Struct, kw_only=True):
    """The run, job and agent that a log belongs to, from its first events; "" and 0 for unknown values.

    `owner` is the user whose directory it is.
    """

    directory: str
    owner: int = 0
    run_id: str = ""
    job: str = ""
    agent: str = ""
    nodes: int = 0
    started_at: float = 0.0

    def is_named(self, name: str) -> bool:
        """Whether the id of this job, or of this agent, begins with `name`."""
        return any(each.startswith(name) for each in (self.job, self.agent))


def identity_of(run: RunDirectory) -> Identity | None:
    """The identity of the log in a directory; None if there is no readable log."""
    try:
        found = Identity(directory=run.path, owner=os.stat(run.path).st_uid)
        with open(open_regular(run.events), "rb") as file:
            for entry in filter(None, map(parse_line, _opening_lines(file))):
                found.run_id = found.run_id or entry.metadata.text("run_id")
                found.started_at = found.started_at or entry.timestamp
                if isinstance(entry.event, RunStarted):
                    found.agent = identifier(entry.event.agent)
                elif isinstance(entry.event, AttemptStarted):
                    found.job = identifier(entry.event.job)
                    found.nodes = entry.event.nodes
                    break
    except OSError:
        return None
    return found


def _opening_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines at the beginning of a log that are not too long, within `PEEK_MAX_LINES` and `PEEK_MAX_BYTES`."""
    left = PEEK_MAX_BYTES
    for _ in range(PEEK_MAX_LINES):
        line = file.readline(min(OPENING_LINE_MAX_BYTES, left))
        left -= len(line)
        if len(line) < OPENING_LINE_MAX_BYTES or line.endswith(b"\n"):
            yield line
        while len(line) > 0 and not line.endswith(b"\n"):
            line = file.readline(min(SKIPPED_BYTES, left))
            left -= len(line)


def identifier(text: str) -> str:
    return text[:ID_MAX_CHARS]


def _take(log: Log, line: bytes) -> None:
    entry = parse_line(line)
    if entry is not None:
        log.entries.append(entry)
    elif line.strip():
        log.skipped_lines += 1


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
