"""The plots of the page: SVG on logarithmic axes.

Places are shares of the width, so that a plot fits any screen while its texts keep their size. Who is who is said by
shape and colour: holdfast a disc, torchrun a square, the limit a bar. Whiskers are quartiles.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.words import NAMES, median_of, quartiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring import Measurement

STRIP_PX = 26
AXIS_PX = 22
MARK_PX = 6

LEFT, RIGHT = 3.0, 97.0
"""Percent of the width between which values are."""

ZERO_LANE = 5.0
"""Percent of the width that a plot with zeros has for them, left of its axis."""

MARGIN = 1.25
"""Factor by which an axis is longer than its values need."""

LINES_PX = 300
LINES_LEFT = 9.0
"""Percent of the width of a line plot for the labels of its vertical axis."""

TIME_UNITS_S = {"s": 1.0, "ms": 1e-3}
"""Units that share an axis."""

_TICKS_MAX = 7


class Axis(NamedTuple):
    """Logarithmic, from `low` to `high`, as percents from `start` to `end`; a zero has a lane of its own before it."""

    low: float
    high: float
    start: float = LEFT
    end: float = RIGHT
    has_zero: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float = LEFT, end: float = RIGHT) -> Axis:
        """One that has room for all of them. There must be one that is not zero."""
        positive = [value for value in values if value > 0]
        has_zero = len(positive) < len(values)
        low, high = min(positive) / MARGIN, max(positive) * MARGIN
        if high / low < 10:  # a decade at least, or small differences look large
            middle = math.sqrt(low * high)
            low, high = middle / math.sqrt(10), middle * math.sqrt(10)
        return cls(low, high, start + ZERO_LANE * (has_zero and start < end), end, has_zero)

    def at(self, value: float) -> float:
        if value <= 0:
            return self.start - ZERO_LANE
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Powers of ten, with their halves and fifths where there is room."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = [step * 10.0**decade for decade in decades for step in steps]
            shown = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(shown) <= _TICKS_MAX:
                return shown
        return shown[:: math.ceil(len(shown) / _TICKS_MAX)]


def scale(measurement: Measurement) -> float:
    """What a value is multiplied with on its axis, which is in seconds for all times."""
    return TIME_UNITS_S.get(measurement.unit, 1.0)


def axis_unit(measurement: Measurement) -> str:
    """Measurements with the same one share an axis."""
    return "time" if measurement.unit in TIME_UNITS_S else measurement.unit


def axis_of(measurements: Sequence[Measurement]) -> Axis | None:
    """One for all; None if there is nothing but zeros."""
    values = [
        value * scale(each) for each in measurements for name in each.samples for value in (each.spread(name) or ())
    ]
    return Axis.over(values) if any(value > 0 for value in values) else None


def css_class(contestant: str) -> str:
    return contestant if contestant in NAMES else "limit"


def mark(contestant: str) -> str:
    """The shape of a contestant, around the origin."""
    kind = css_class(contestant)
    if kind == HOLDFAST:
        return f'<circle r="{MARK_PX}" class="{kind}"/>'
    if kind == TORCH:
        side = 2 * MARK_PX - 1
        return f'<rect x="{-side / 2}" y="{-side / 2}" width="{side}" height="{side}" class="{kind}"/>'
    return f'<rect x="-2" y="{-MARK_PX - 3}" width="4" height="{2 * MARK_PX + 6}" class="{kind}"/>'


def strip(measurement: Measurement, axis: Axis) -> str:
    """One row of a plot: everybody's median and quartiles on one line."""
    middle = STRIP_PX / 2
    parts = [_line(axis.at(tick), 0, axis.at(tick), STRIP_PX, "tick") for tick in axis.ticks()]
    parts.append(_line(0, middle, 100, middle, "track"))
    for name in sorted(measurement.samples, key=[TORCH, HOLDFAST].__contains__):
        spread = measurement.spread(name)
        assert spread is not None
        low, at, high = (axis.at(value * scale(measurement)) for value in spread)
        kind = css_class(name)
        parts.append(_line(low, middle, high, middle, f"whisker {kind}"))
        title = f"{NAMES.get(name, name)}: {median_of(measurement, name)} {measurement.unit} ({quartiles(spread)})"
        arrow = f'<path d="M 10 -5 L 17 0 L 10 5" class="beyond {kind}"/>' if measurement.is_unfinished(name) else ""
        parts.append(_at(at, middle, f"<title>{escape(title)}</title>{mark(name)}{arrow}"))
    label = escape(measurement.what)
    return f'<svg width="100%" height="{STRIP_PX}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def axis_line(axis: Axis, unit: str) -> str:
    """The scale below the strips of a plot."""
    parts = []
    for place, tick in enumerate(axis.ticks()):
        narrow = " wide-only" if place % 2 else ""
        parts.append(_text(axis.at(tick), 15, tick_label(tick, unit), f"axis{narrow}"))
    if axis.has_zero:
        parts.append(_text(axis.at(0), 15, "0", "axis"))
    return f'<svg width="100%" height="{AXIS_PX}" aria-hidden="true">{"".join(parts)}</svg>'


def tick_label(value: float, unit: str) -> str:
    """A time in the unit that fits it."""
    if unit != "time":
        return f"{value:,.6g} {unit}".rstrip()
    for unit_s, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= unit_s * 0.999:
            return f"{value / unit_s:.4g} {name}"
    return f"{value * 1e9:.4g} ns"


def lines(measurements: Sequence[Measurement]) -> str:
    """Measurements over their nodes: a line for each contestant."""
    vertical = [
        value * scale(each) for each in measurements for name in each.samples for value in (each.spread(name) or ())
    ]
    down = Axis.over(vertical, LINES_PX - AXIS_PX - 12.0, 12.0)
    across = Axis.over([float(each.nodes) for each in measurements], LINES_LEFT)
    parts = []
    for tick in down.ticks():
        parts.append(_line(LINES_LEFT, down.at(tick), 100, down.at(tick), "tick"))
        parts.append(f'<text x="0" y="{down.at(tick) + 4:.1f}" class="axis">{tick_label(tick, "time")}</text>')
    for each in measurements:
        at = across.at(each.nodes)
        parts.append(_line(at, 0, at, LINES_PX - AXIS_PX, "tick"))
        parts.append(_text(at, LINES_PX - 5, f"{each.nodes} nodes", "axis"))
    for kind in ("limit", TORCH, HOLDFAST):
        parts += _one_line([each for each in measurements if _of_kind(each, kind)], kind, across, down)
    label = "Time to meet, over the number of nodes"
    return f'<svg width="100%" height="{LINES_PX}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _of_kind(measurement: Measurement, kind: str) -> str:
    """The contestant of this kind, "" if there is none."""
    return next((name for name in measurement.samples if css_class(name) == kind), "")


def _one_line(measurements: Sequence[Measurement], kind: str, across: Axis, down: Axis) -> Iterator[str]:
    before: tuple[float, float] | None = None
    for each in measurements:
        name = _of_kind(each, kind)
        spread = each.spread(name)
        assert spread is not None
        x = across.at(each.nodes)
        low, y, high = (down.at(value * scale(each)) for value in spread)
        if before is not None:
            yield _line(*before, x, y, f"line {kind}")
        yield _line(x, low, x, high, f"whisker {kind}")
        arrow = f'<path d="M -5 -10 L 0 -17 L 5 -10" class="beyond {kind}"/>' if each.is_unfinished(name) else ""
        value = f"{median_of(each, name)} {each.unit}"
        title = f"<title>{escape(NAMES.get(name, name))}, {each.nodes} nodes: {escape(value)}</title>"
        shape = mark(name) if kind != "limit" else f'<rect x="-7" y="-2" width="14" height="4" class="{kind}"/>'
        yield _at(x, y, f"{title}{shape}{arrow}")
        yield _text(x, y + 20, value, f"value {kind}", anchor="middle")
        before = (x, y)


def _at(x: float, y: float, inside: str) -> str:
    return f'<svg x="{x:.2f}%" y="{y:.1f}" overflow="visible">{inside}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    return f'<line x1="{x1:.2f}%" y1="{y1:.1f}" x2="{x2:.2f}%" y2="{y2:.1f}" class="{classes}"/>'


def _text(x: float, y: float, text: str, classes: str, anchor: str = "") -> str:
    anchor = anchor or ("start" if x < LEFT + 2 else "end" if x > RIGHT - 2 else "middle")
    return f'<text x="{x:.2f}%" y="{y:.1f}" text-anchor="{anchor}" class="{classes}">{escape(text)}</text>'
