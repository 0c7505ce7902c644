"""Results as one table for a person at a terminal to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.words import NAMES, limit, ratio, target, with_quartiles

if TYPE_CHECKING:
    from benchmarks.measuring import Measurement
    from benchmarks.results import Results

HEADINGS = ("", "unit", NAMES[HOLDFAST], NAMES[TORCH], f"÷ {NAMES[TORCH]}", "limit", "target")

_GAP = "  "


def table(results: Results) -> str:
    """A block for each topic, a row for each measurement; its second and later targets have lines of their own."""
    groups = [(topic.title, [row for each in group for row in _rows(each)]) for topic, group in results.by_topic()]
    widths = [
        max(map(len, column)) for column in zip(HEADINGS, *(row for _, rows in groups for row in rows), strict=True)
    ]
    lines = [_line(HEADINGS, widths)]
    for title, rows in groups:
        lines += [f"── {title} ".ljust(sum(widths) + len(_GAP) * (len(widths) - 1), "─")]
        lines += [_line(row, widths) for row in rows]
    return "\n".join(lines)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _rows(measurement: Measurement) -> list[tuple[str, ...]]:
    first = (
        measurement.what,
        measurement.unit,
        with_quartiles(measurement, HOLDFAST),
        with_quartiles(measurement, TORCH),
        ratio(measurement),
        limit(measurement),
    )
    blank = ("",) * len(first)
    targets = [target(verdict) for verdict in measurement.verdicts()] or [""]
    return [(*(blank if index else first), wanted) for index, wanted in enumerate(targets)]
