"""A node's time line cut into columns of equal length, for pictures that cannot show every span. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.report.records import Span

if TYPE_CHECKING:
    from holdfast.report.records import Activity


def columns(spans: list[Span], begin_s: float, end_s: float, count: int) -> list[Activity | None]:
    """The main activity of each of `count` columns from `begin_s` to `end_s`; None for an empty column."""
    width_s = (end_s - begin_s) / count
    if width_s <= 0:
        return [None] * count
    spent: list[dict[Activity, float]] = [{} for _ in range(count)]
    for span in spans:
        first = max(int((span.begin_s - begin_s) / width_s), 0)
        last = min(int((span.end_s - begin_s) / width_s), count - 1)
        for column in range(first, last + 1):
            left = begin_s + column * width_s
            inside_s = min(span.end_s, left + width_s) - max(span.begin_s, left)
            if inside_s > 0:
                spent[column][span.activity] = spent[column].get(span.activity, 0.0) + inside_s
    return [max(each, key=lambda activity: each[activity]) if each else None for each in spent]


def simplified(spans: list[Span], max_spans: int) -> list[Span]:
    """`spans`, reduced to about `max_spans` if there are more. From afar they look the same."""
    if len(spans) <= max_spans:
        return spans
    begin_s, end_s = spans[0].begin_s, spans[-1].end_s
    width_s = (end_s - begin_s) / max_spans
    coarse: list[Span] = []
    for place, activity in enumerate(columns(spans, begin_s, end_s, max_spans)):
        right_s = begin_s + (place + 1) * width_s
        if activity is None:
            continue
        if coarse and coarse[-1].activity is activity:
            coarse[-1].end_s = right_s
        else:
            coarse.append(Span(activity=activity, begin_s=begin_s + place * width_s, end_s=right_s))
    return coarse
