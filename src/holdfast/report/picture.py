"""The pictures of a report: SVG inside the page.

Positions and lengths are shares of the width, so that bars fit any screen while texts keep their size. A bar's colour,
pattern, sign and title all show its meaning, never the colour alone.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from holdfast.errors.text import visible
from holdfast.report.records import Activity, Outcome
from holdfast.report.strip import simplified
from holdfast.report.timeline import verdict_of
from holdfast.report.units import DAY_S, HOUR_S, MINUTE_S, OUTCOME_SIGNS, duration, names, share, what, who

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.report.records import Attempt, Node, Run, Span

NODES_DRAWN_MAX = 64
SPANS_DRAWN_MAX = 400
"""The number of spans drawn per node. If there are more, each column of the picture shows its main activity."""

ROW_PX = 52
LABEL_PX = 18
BAR_PX = 24
AXIS_PX = 26
TOP_PX = 4
SPLIT_PX = 34
TICKS_MAX = 6

LAST_TICK_PERCENT = 94.0
"""From here on, a tick's text ends at the tick: otherwise it would leave the picture."""

THIN_PERCENT = 0.15
"""The minimum width of a bar, so that it stays visible."""

LABEL_MIN_PERCENT = 3.0
"""Narrower bars have no label."""

WIDE_LABEL_PERCENT = 10.0
"""Narrower bars have no label on narrow screens."""

MARK = "M -5.5 -7 L 5.5 -7 L 0 3 Z"
"""The mark of a failure: a triangle that points at the end of the bar."""

CLASSES = {
    Activity.STARTING: "starting",
    Activity.WAITING: "waiting",
    Activity.RESTARTING: "restarting",
    Activity.TRAINING: "good",
    Activity.LOST: "bad",
}
PATTERNS = {"bad": "hatch", "waiting": "dots", "gone": "hatch"}

DEFINITIONS = (
    '<svg width="0" height="0" class="patterns" aria-hidden="true"><defs>'
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="2.5" height="7" class="ink"/></pattern>'
    '<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<circle cx="2" cy="2" r="1.2" class="ink"/></pattern>'
    "</defs></svg>"
)
"""The shared definitions of all pictures; include them once per page."""

_TICK_UNITS_S = tuple(
    step * unit_s
    for unit_s, steps in (
        (0.001, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1, (1, 2, 5, 10, 15, 30)),
        (MINUTE_S, (1, 2, 5, 10, 15, 30)),
        (HOUR_S, (1, 2, 3, 6, 12)),
        (DAY_S, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
    )
    for step in steps
)


def timeline(run: Run) -> str:
    """One row per node, aligned by the attempts they share; "" if no times are known."""
    shown = [node for node in run.nodes if node.spans][:NODES_DRAWN_MAX]
    if not shown:
        return ""
    offsets = dict(zip(map(id, run.nodes), run.offsets_s(), strict=True))
    length_s = max(node.length_s + offsets[id(node)] for node in shown) or 1.0
    height = TOP_PX + ROW_PX * len(shown) + AXIS_PX
    parts = list(_axis(length_s, height))
    labels = dict(zip(map(id, run.nodes), names(run), strict=True))
    for place, node in enumerate(shown):
        parts += _row(node, labels[id(node)], place, offsets[id(node)], length_s)
    label = f"Timeline of {len(shown)} agent{'s' * (len(shown) > 1)} over {duration(length_s)}"
    return (
        f'<svg class="timeline" width="100%" height="{height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )


def split_bar(spent: dict[Activity, float]) -> str:
    """One bar of the whole time, divided by activity; "" if the times are unknown."""
    whole_s = sum(spent.values())
    if not whole_s:
        return ""
    parts, left = [], 0.0
    for activity, seconds in spent.items():
        if not seconds:
            continue
        percent = 100 * seconds / whole_s
        title = f"{activity}: {duration(seconds)}, {share(seconds, whole_s)}"
        parts.append(_bar(left, percent, 0, SPLIT_PX, CLASSES[activity], share(seconds, whole_s), title))
        left += percent
    return (
        f'<svg class="split" width="100%" height="{SPLIT_PX}" role="img" aria-label="Time split">{"".join(parts)}</svg>'
    )


def swatch(css_class: str) -> str:
    """A small sample of a bar of this class."""
    return f'<svg class="swatch" width="22" height="14" aria-hidden="true">{_fill(css_class)}</svg>'


def mark_swatch(css_class: str) -> str:
    """A sample of the mark of a failure."""
    return (
        '<svg class="swatch" width="14" height="14" aria-hidden="true">'
        f'<svg x="7" y="9" overflow="visible" class="{css_class}"><path d="{MARK}"/></svg></svg>'
    )


def bar_class(span: Span, attempt: Attempt | None) -> str:
    """The CSS class of a span's bar: for an attempt, by its outcome."""
    if attempt is None:
        return CLASSES[span.activity]
    if attempt.outcome in (Outcome.LOST, Outcome.UNKNOWN):
        return "gone"
    if span.activity is Activity.LOST:
        return CLASSES[span.activity]
    return {Outcome.STOPPED: "stopped", Outcome.RUNNING: "running"}.get(attempt.outcome, CLASSES[span.activity])


def _row(node: Node, label: str, place: int, offset_s: float, length_s: float) -> Iterator[str]:
    top = TOP_PX + place * ROW_PX
    name = escape(visible(f"{label} · {OUTCOME_SIGNS[node.outcome]} {node.outcome}"))
    yield f'<text x="0" y="{top + LABEL_PX - 6}" class="label">{name}</text>'
    by_number = {attempt.number: attempt for attempt in node.attempts}
    for span in simplified(node.spans, SPANS_DRAWN_MAX):
        attempt = by_number.get(span.attempt)
        left = 100 * (span.begin_s + offset_s) / length_s
        percent = 100 * (span.end_s - span.begin_s) / length_s
        css_class = bar_class(span, attempt)
        yield _bar(left, percent, top + LABEL_PX, BAR_PX, css_class, _label(span, attempt), _title(span, attempt))
        if attempt is not None and attempt.failures:
            yield _failure_mark(left + percent, top + LABEL_PX, attempt)


def _label(span: Span, attempt: Attempt | None) -> str:
    if attempt is None:
        return ""
    number = attempt.number if attempt.generation is None else attempt.generation
    sign = OUTCOME_SIGNS[Outcome.FAILED if span.activity is Activity.LOST and attempt.verdict else attempt.outcome]
    return f"{sign} {number}"


def _title(span: Span, attempt: Attempt | None) -> str:
    took = duration(span.end_s - span.begin_s)
    if attempt is None:
        return f"{span.activity}: {took}"
    name = f"attempt {attempt.number}" if attempt.generation is None else f"generation {attempt.generation}"
    return f"{name}, {attempt.outcome}: workers ran for {took} ({span.activity})"


def _failure_mark(left: float, top: int, attempt: Attempt) -> str:
    verdict = verdict_of(attempt)
    assert verdict is not None
    own = [failure for failure in attempt.failures if failure.rank == verdict.cause.rank]
    cause = own[0] if own else attempt.failures[0]
    css_class = "cause" if own else "victim"
    more = f" and {len(attempt.failures) - 1} more" if len(attempt.failures) > 1 else ""
    title = escape(f"{who(cause)}: {what(cause)}{more}")
    return (
        f'<svg x="{min(left, 100):.3f}%" y="{top}" overflow="visible" class="{css_class}"><title>{title}</title>'
        f'<path d="{MARK}"/></svg>'
    )


def _bar(left: float, percent: float, top: int, height: int, css_class: str, label: str, title: str) -> str:
    text = ""
    if label and percent >= LABEL_MIN_PERCENT:
        narrow = "" if percent >= WIDE_LABEL_PERCENT else " wide-only"
        text = (
            f'<text x="50%" y="{height / 2 + 4:.0f}" text-anchor="middle" class="on-bar{narrow}">{escape(label)}</text>'
        )
    width = max(percent, THIN_PERCENT)
    return (
        f'<svg x="{min(left, 100 - width):.3f}%" y="{top}" width="{width:.3f}%" height="{height}">'
        f"<title>{escape(title)}</title>{_fill(css_class)}{text}</svg>"
    )


def _fill(css_class: str) -> str:
    rect = f'<rect width="100%" height="100%" class="{css_class}"/>'
    pattern = PATTERNS.get(css_class)
    return f'{rect}<rect width="100%" height="100%" fill="url(#{pattern})"/>' if pattern else rect


def _axis(length_s: float, height: int) -> Iterator[str]:
    step_s = next((unit_s for unit_s in _TICK_UNITS_S if length_s / unit_s <= TICKS_MAX), length_s)
    bottom = height - AXIS_PX
    for number in range(int(length_s / step_s) + 1):
        left = 100 * number * step_s / length_s
        anchor = "start" if number == 0 else "end" if left > LAST_TICK_PERCENT else "middle"
        narrow = "" if number % 2 == 0 else " wide-only"
        yield f'<line x1="{left:.3f}%" x2="{left:.3f}%" y1="0" y2="{bottom + 4}" class="tick"/>'
        yield (
            f'<text x="{left:.3f}%" y="{height - 6}" text-anchor="{anchor}" class="axis{narrow}">'
            f"{_tick(number * step_s)}</text>"
        )


def _tick(seconds: float) -> str:
    if not seconds:
        return "0"
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds * 1000:.0f} ms"
