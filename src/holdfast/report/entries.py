"""The readable lines of an event log. Reading never fails."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.errors.text import clipped
from holdfast.errors.tree import InputError
from holdfast.events.schema import AttemptStarted, RunStarted
from holdfast.files import open_regular
from holdfast.report.reading import event_in

if TYPE_CHECKING:
    from holdfast.events.schema import RunEvent
    from holdfast.run_directory import RunDirectory

LINE_MAX_BYTES = 4_000_000
"""A longer line is not ours."""

LOG_MAX_BYTES = 256_000_000
"""How much of a log is read: enough for thousands of failed attempts. A sparse file can be larger than any disk."""

TEXT_MAX_CHARS = 20_000
"""How much of a text is kept: its head and its tail."""

LIST_MAX_ITEMS = 100_000
"""How many items of a list, such as the ranks, are kept."""

NUMBER_MAX = 1e15
"""Numbers of a larger magnitude are invalid, and some do not fit into a float."""

PEEK_MAX_LINES = 20
"""How many lines are read to identify a log. The first attempt is within them: it is written with earlier events."""

ID_MAX_CHARS = 64
"""How much of a job's or an agent's id is kept."""

TORCH_PREFIX = "torchelastic.worker.status."


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
    is_cut: bool = False
    """Whether the log is longer than `LOG_MAX_BYTES`: the rest was not read."""


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
    return Entry(name, facts.text("source"), facts.number("timestamp"), metadata, event)


def read_log(run: RunDirectory) -> Log:
    """The event log in a run's directory.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    log = Log([])
    try:
        with open(open_regular(run.events), "rb") as file:
            left = LOG_MAX_BYTES
            while left > 0 and (line := file.readline(min(LINE_MAX_BYTES, left))):
                left -= len(line)
                _take(log, line)
                while left > 0 and line and not line.endswith(b"\n"):
                    line = file.readline(min(LINE_MAX_BYTES, left))  # the rest of a line that is too long
                    left -= len(line)
            log.is_cut = left <= 0 and bool(file.read(1))
    except OSError as error:
        raise InputError(f"{run.events!r} cannot be read: {error.strerror or 'it does not exist'}") from error
    return log


class Identity(Struct, kw_only=True):
    """The run, job and agent that a log belongs to, from its first events; "" and 0 for unknown values."""

    directory: str
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
    found = Identity(directory=run.path)
    try:
        with open(open_regular(run.events), "rb") as file:
            for _ in range(PEEK_MAX_LINES):
                entry = parse_line(file.readline(LINE_MAX_BYTES))
                if entry is None:
                    continue
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
