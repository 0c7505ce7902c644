"""What a check has found."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Good to know. Nothing has to be done."""

    WARNING = "warning"
    """Jobs run, and some of them break or are slow because of it."""

    PROBLEM = "problem"
    """A job of the kind that was asked about does not run."""

    SKIPPED = "skipped"
    """Not looked at, and why."""


class Finding(NamedTuple):
    """One fact about this machine.

    Attributes:
        topic: what it is about; findings of a topic are shown together.
        check: its name within the topic, for programs. It stays the same whatever is found.
        state: how much it matters.
        what: the fact, in a line or two.
        advice: what to do about it; "" where there is nothing to do.
    """

    topic: str
    check: str
    state: State
    what: str
    advice: str = ""


class Topic:
    """Makes the findings of one topic: ``names = Topic("names")``, ``names.ok("own", "...")``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, check: str, what: str) -> Finding:
        return Finding(self.name, check, State.OK, what)

    def note(self, check: str, what: str, advice: str = "") -> Finding:
        return Finding(self.name, check, State.NOTE, what, advice)

    def warning(self, check: str, what: str, advice: str) -> Finding:
        return Finding(self.name, check, State.WARNING, what, advice)

    def problem(self, check: str, what: str, advice: str) -> Finding:
        return Finding(self.name, check, State.PROBLEM, what, advice)

    def skipped(self, check: str, why: str) -> Finding:
        return Finding(self.name, check, State.SKIPPED, why)


def size(count_bytes: float) -> str:
    """Bytes as people write them: ``64 MiB``, ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:  # noqa: PLR2004 - what the next unit is worth
            return f"{count_bytes:.3g} {unit}" if count_bytes < 100 else f"{count_bytes:.0f} {unit}"  # noqa: PLR2004
        count_bytes /= 1024
    return f"{count_bytes:.3g} TiB" if count_bytes < 100 else f"{count_bytes:.0f} TiB"  # noqa: PLR2004


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
