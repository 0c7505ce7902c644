"""Findings as text for a terminal, and as JSON."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.doctor.finding import State, counted
from holdfast.errors.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.doctor.finding import Finding

WIDTH_MIN_CHARS = 60
WIDTH_MAX_CHARS = 120

MARKS = {State.OK: "ok", State.NOTE: "note", State.WARNING: "!", State.PROBLEM: "✗", State.SKIPPED: "-"}
"""The mark before a finding."""

_INDENT = 2
_MARK_CHARS = 6

_RESET, _BOLD, _DIM, _RED, _GREEN, _YELLOW = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
_COLOURS = {State.OK: _GREEN, State.NOTE: "", State.WARNING: _YELLOW, State.PROBLEM: _RED, State.SKIPPED: _DIM}


def findings_text(
    findings: Sequence[Finding], width: int = 100, *, colours: bool = False, encoding: str = "utf-8"
) -> str:
    """Findings by topic, each with its advice below, and the number of problems in the last line.

    Characters that `encoding` lacks are replaced.
    """
    width = min(max(width, WIDTH_MIN_CHARS), WIDTH_MAX_CHARS)
    blocks = []
    for topic, group in groupby(findings, key=attrgetter("topic")):
        lines = [_painted(topic, _BOLD, colours)]
        for finding in group:
            lines += _lines(finding, width, colours=colours, encoding=encoding)
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, _painted(summary(findings), _summary_colour(findings), colours)])


def findings_json(findings: Sequence[Finding]) -> str:
    """A list with an object for each finding: topic, check, state, what, advice. Only ASCII."""
    return json.dumps([finding._asdict() for finding in findings], indent=2)


def summary(findings: Sequence[Finding]) -> str:
    """The number of problems and warnings."""
    problems = _told(findings, State.PROBLEM) or "no problem found"
    warnings = _told(findings, State.WARNING)
    return f"{problems}, {warnings}" if warnings else problems


def _told(findings: Sequence[Finding], state: State) -> str:
    """The number of findings with a state, and their topics; "" for none."""
    topics = [finding.topic for finding in findings if finding.state is state]
    return f"{counted(len(topics), state.value)} ({', '.join(dict.fromkeys(topics))})" if topics else ""


def _lines(finding: Finding, width: int, *, colours: bool, encoding: str) -> list[str]:
    mark = _encodable(MARKS[finding.state], encoding)
    indent = " " * (_INDENT + _MARK_CHARS)
    what, *rest = textwrap.wrap(visible(finding.what), width - len(indent), break_on_hyphens=False) or [""]
    colour = _COLOURS[finding.state]
    lines = [f"{' ' * _INDENT}{_painted(f'{mark:{_MARK_CHARS}}', colour, colours)}{what}"]
    lines += [f"{indent}{line}" for line in rest]
    if finding.advice:
        arrow = _encodable("→", encoding)
        advice = textwrap.wrap(
            visible(finding.advice),
            width - len(indent) - len(arrow) - 1,
            break_on_hyphens=False,
            break_long_words=False,
        )
        lines += [f"{indent}{arrow if number == 0 else ' ' * len(arrow)} {line}" for number, line in enumerate(advice)]
    return lines


def _encodable(mark: str, encoding: str) -> str:
    try:
        mark.encode(encoding)
    except (UnicodeError, LookupError):
        return {"✗": "x", "→": "->"}[mark]
    return mark


def _painted(text: str, colour: str, colours: bool) -> str:
    return f"{colour}{text}{_RESET}" if colours and colour else text


def _summary_colour(findings: Sequence[Finding]) -> str:
    if _count(findings, State.PROBLEM):
        return _RED
    return _YELLOW if _count(findings, State.WARNING) else _GREEN


def _count(findings: Sequence[Finding], state: State) -> int:
    return sum(finding.state is state for finding in findings)
