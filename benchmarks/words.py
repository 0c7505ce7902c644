"""A measurement's cells in words: the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.subject import HOLDFAST, TORCH

if TYPE_CHECKING:
    from benchmarks.measuring import Measurement, Spread, Verdict
    from benchmarks.results import Results

NAMES = {HOLDFAST: "holdfast", TORCH: "torchrun"}
"""How a contestant is called; the limits are called what they are."""

RATES = ("MB/s", "ops/s")
"""Units of which more is better; of all others less is."""

HOW_TO_READ = (
    "Medians of alternating rounds. Ratios (÷ torchrun) are taken round by round.\n"
    "Less is better, except for MB/s and ops/s. > means that we stopped waiting."
)


def number(value: float) -> str:
    """With three digits that count, and never an exponent."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.6f}"


def median_of(measurement: Measurement, contestant: str) -> str:
    """ "" if it was not measured."""
    spread = measurement.spread(contestant)
    if spread is None:
        return ""
    return f"{'> ' * measurement.is_unfinished(contestant)}{number(spread.median)}"


def with_quartiles(measurement: Measurement, contestant: str) -> str:
    """ "" if it was not measured."""
    spread = measurement.spread(contestant)
    if spread is None or spread.low == spread.high or measurement.is_unfinished(contestant):
        return median_of(measurement, contestant)
    return f"{number(spread.median)} ({quartiles(spread)})"


def quartiles(spread: Spread) -> str:
    return f"{number(spread.low)}…{number(spread.high)}"


def limit(measurement: Measurement) -> str:
    """Its median and its name."""
    name = measurement.limit()
    return f"{median_of(measurement, name)} {name}" if name else ""


def ratio(measurement: Measurement) -> str:
    """holdfast's to torch's, as far as both are known."""
    spread = measurement.ratio(HOLDFAST, TORCH)
    if spread is None or measurement.is_unfinished(HOLDFAST):
        return ""
    return f"{'< ' * measurement.is_unfinished(TORCH)}{number(spread.median)}"


def target(verdict: Verdict) -> str:
    """The bound, and whether it is met."""
    return f"{bound_of(verdict)} {'ok' if verdict.is_met else 'MISSED'}"


def bound_of(verdict: Verdict) -> str:
    """What was reached is said as well where no other cell has it."""
    bound, at_most, against = verdict.target
    wanted = f"{'≤' if at_most else '≥'} {number(bound)}"
    if against:
        wanted = f"{wanted} of {NAMES.get(against, against)}"
    if against not in ("", TORCH):
        wanted = f"{wanted}: {number(verdict.value)}"
    return wanted


def facts(results: Results) -> str:
    """The machine in a line."""
    quick = " · QUICK run: few rounds" if results.is_quick else ""
    return " · ".join(f"{name} {value}" for name, value in results.machine.items()) + quick
