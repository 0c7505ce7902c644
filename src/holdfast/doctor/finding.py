"""The findings of checks."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Good to know. No action is needed."""

    WARNING = "warning"
    """Jobs run, but some of them break or are slow because of it."""

    PROBLEM = "problem"
    """A job of the requested kind does not run."""

    SKIPPED = "skipped"
    """Not checked, and why."""


class Finding(NamedTuple):
    """One fact about this machine.

    Attributes:
        topic: the subject; findings of a topic are shown together.
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


BYTES_A_KIB = 1024

THREE_DIGITS = 100
"""From here on, a number has three digits before the point."""


def size(count_bytes: float) -> str:
    """Bytes in readable form: ``64 MiB``, ``1.5 GiB``."""
    *units, largest = ("bytes", "KiB", "MiB", "GiB", "TiB")
    while units and count_bytes >= BYTES_A_KIB:
        units.pop(0)
        count_bytes /= BYTES_A_KIB
    digits = ".3g" if count_bytes < THREE_DIGITS else ".0f"
    return f"{count_bytes:{digits}} {units[0] if units else largest}"


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
