"""A campaign: every target in turn until its share of the time is over, and a report of what was found."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from fuzz import with_atheris
from fuzz.examination import Problem, examine
from fuzz.loop import Loop
from fuzz.minimising import minimised
from fuzz.records import try_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuzz.target import Target

FOUND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "found")
"""Where inputs are put that find something. A repaired defect's input belongs into `corpus`."""

TELL_EVERY_S = 10.0
"""How often a line says how far it is."""

PROBLEMS_MAX = 5
"""With so many different problems, a target has its turn no longer."""

RECORDS_SHARE = 0.25
"""How much of a target's time goes to hypothesis, where it has records for it."""

RECORDS_AT_ONCE = 100

ATHERIS_SHARE = 0.4
"""How much of a target's time goes to atheris, where it is installed."""

SHOWN_BYTES = 200
SHOWN_LINES = 25
SHOWN_LINE_CHARS = 300


class Result(NamedTuple):
    """What became of one target."""

    name: str
    runs: int
    took_s: float
    lines: int
    found: list[str]


def fuzz(target: Target, seed: int, seconds: float, tell: Callable[[str], None]) -> Result:
    """Fuzz one target for so long. What is found is told at once, and put into a file of its own."""
    began = time.monotonic()
    loop = Loop(target, seed)
    found: dict[str, str] = {}

    def note(data: bytes, problem: Problem) -> None:
        if problem.signature not in found:
            shortest = minimised(target, data, problem)
            found[problem.signature] = keep(target, shortest)
            tell(_told(target, shortest, problem, found[problem.signature]))

    for data, problem in loop.first():
        note(data, problem)
    if with_atheris.is_installed() and seconds * ATHERIS_SHARE >= 1:
        for data in with_atheris.inputs_found(target, seconds * ATHERIS_SHARE, seed):
            seen = examine(target, data, with_memory=True)
            note(data, seen or Problem("atheris", "it raises under atheris, and not by itself"))
    records = _fuzz_records(target, seed, time.monotonic() + seconds * RECORDS_SHARE, note) if target.records else 0
    told_at = time.monotonic()
    while time.monotonic() < began + seconds and len(found) < PROBLEMS_MAX:
        for data, problem in loop.step():
            note(data, problem)
        if time.monotonic() > told_at + TELL_EVERY_S:
            told_at = time.monotonic()
            tell(f"  {target.name}: {loop.runs + records} inputs, {loop.lines} lines reached, {len(found)} problems")
    return Result(target.name, loop.runs + records, time.monotonic() - began, loop.lines, list(found.values()))


def _fuzz_records(target: Target, seed: int, until: float, note: Callable[[bytes, Problem], None]) -> int:
    """Valid records, until something is found or the time is over; returns how many were tried."""
    count = 0
    while time.monotonic() < until:
        found = try_records(target, seed + count, RECORDS_AT_ONCE)
        count += RECORDS_AT_ONCE
        if found is not None:
            note(*found)
            break
    return count


def keep(target: Target, data: bytes) -> str:
    """Put an input where it can be found again; returns the path."""
    directory = os.path.join(FOUND, target.name)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, hashlib.sha256(data).hexdigest()[:12])
    with open(path, "wb") as file:
        file.write(data)
    return os.path.relpath(path)


def _told(target: Target, data: bytes, problem: Problem, path: str) -> str:
    text = [line[:SHOWN_LINE_CHARS] for line in problem.text.splitlines()]
    more = "" if len(data) <= SHOWN_BYTES else f" and {len(data) - SHOWN_BYTES} bytes more"
    return "\n".join(
        [
            f"{target.name} has a problem: {problem.signature}",
            *(f"  | {line}" for line in text[-SHOWN_LINES:]),
            f"  input ({len(data)} bytes): {data[:SHOWN_BYTES].hex()}{more}",
            f"  again with: make fuzz TARGET={target.name} INPUT={path}",
        ]
    )


def table(results: Sequence[Result]) -> str:
    """One line for each target."""
    rows = [("target", "inputs", "a second", "lines", "problems")]
    rows += [
        (each.name, f"{each.runs}", f"{each.runs / max(each.took_s, 1e-9):.0f}", f"{each.lines}", f"{len(each.found)}")
        for each in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        f"{row[0]:{widths[0]}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )
