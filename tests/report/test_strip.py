"""A time line in columns."""

from __future__ import annotations

import pytest

from holdfast.report.records import Activity, Span
from holdfast.report.strip import columns, simplified

WAIT, TRAIN, LOST = Activity.WAITING, Activity.TRAINING, Activity.LOST


def spans(*parts):
    """Spans one after the other, each with its length."""
    found, at = [], 0.0
    for activity, seconds in parts:
        found.append(Span(activity=activity, begin_s=at, end_s=at + seconds))
        at += seconds
    return found


def test_a_column_shows_what_most_of_its_time_went_into():
    assert columns(spans((WAIT, 3), (TRAIN, 7)), 0.0, 10.0, 2) == [WAIT, TRAIN]
    assert columns(spans((WAIT, 2), (TRAIN, 8)), 0.0, 10.0, 2) == [TRAIN, TRAIN]
    assert columns(spans((WAIT, 1.5), (TRAIN, 2), (WAIT, 1.5)), 0.0, 5.0, 1) == [WAIT]


def test_a_column_without_a_span_is_empty():
    assert columns(spans((TRAIN, 5)), -5.0, 10.0, 3) == [None, TRAIN, None]
    assert columns([], 0.0, 1.0, 2) == columns(spans((TRAIN, 1)), 1.0, 1.0, 2) == [None, None]


def test_few_spans_are_kept_as_they_are():
    few = spans((WAIT, 1), (TRAIN, 2))
    assert simplified(few, 2) is few


def test_many_spans_become_few_of_the_same_length():
    many = spans(*[(WAIT, 1), (TRAIN, 9)] * 500, *[(LOST, 10)] * 100)
    few = simplified(many, 60)
    assert [span.activity for span in few] == [TRAIN, LOST]
    assert (few[0].begin_s, few[-1].end_s) == (0.0, pytest.approx(6000.0))
    assert few[0].end_s == few[1].begin_s == pytest.approx(5000.0)
    assert all(span.begin_s < span.end_s for span in few)
