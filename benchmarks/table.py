"""Measurements as one table for a person to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.subject import HOLDFAST, TORCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring import Measurement, Spread, Verdict

HEADINGS = ("", "unit", HOLDFAST, TORCH, "limit", f"÷ {TORCH}", "target", "reached", "")

_GAP = "   "


def table(measurements: Sequence[Measurement]) -> str:
    """One row a measurement; its second and later targets have lines of their own below it."""
    rows = [HEADINGS, *(row for measurement in measurements for row in _rows(measurement))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, _GAP.join("─" * width for width in widths))
    return "\n".join(lines)


def _rows(measurement: Measurement) -> list[tuple[str, ...]]:
    limit = measurement.limit()
    ratio = measurement.ratio(HOLDFAST, TORCH) if TORCH in measurement.samples else None
    first = (
        measurement.what,
        measurement.unit,
        _with_quartiles(measurement.spread(HOLDFAST)),
        _with_quartiles(measurement.spread(TORCH)) if TORCH in measurement.samples else "",
        f"{number(measurement.spread(limit).median)} {limit}" if limit else "",
        number(ratio.median) if ratio else "",
    )
    targets = [_target(verdict) for verdict in measurement.verdicts()] or [("", "", "")]
    blank = ("",) * len(first)
    return [(*(blank if index else first), *target) for index, target in enumerate(targets)]


def _target(verdict: Verdict) -> tuple[str, str, str]:
    bound, at_most, against = verdict.target
    wanted = f"{'≤' if at_most else '≥'} {number(bound)}"
    return f"{wanted} of {against}" if against else wanted, number(verdict.value), "ok" if verdict.is_met else "MISSED"


def _with_quartiles(spread: Spread) -> str:
    middle = number(spread.median)
    return middle if spread.low == spread.high else f"{middle} ({number(spread.low)} … {number(spread.high)})"


def number(value: float) -> str:
    """With three digits that count, and never an exponent."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.6f}"
