"""The pictures of a report: well-formed, within their frame, and never by colour alone."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
import written_runs

from holdfast.report import find_run
from holdfast.report.picture import (
    DEFINITIONS,
    NODES_DRAWN_MAX,
    PATTERNS,
    SPANS_DRAWN_MAX,
    bar_class,
    mark_swatch,
    split_bar,
    swatch,
    timeline,
)
from holdfast.report.records import Activity, Attempt, Node, Outcome, Run, Span


def run_with(*nodes):
    return Run(run_id="", outcome=Outcome.SUCCEEDED, nodes=list(nodes))


def node(*spans, **fields):
    return Node(directory="", spans=list(spans), length_s=max(span.end_s for span in spans), **fields)


def span(begin_s, end_s, activity=Activity.TRAINING, attempt=0):
    return Span(activity=activity, begin_s=begin_s, end_s=end_s, attempt=attempt)


def bars(picture):
    """The place and the width of each bar, in percent."""
    found = ET.fromstring(picture).iter("svg")
    return [
        (float(bar.get("x")[:-1]), float(bar.get("width")[:-1]))
        for bar in found
        if bar.get("x") and (bar.get("width") or "").endswith("%")
    ]


@pytest.mark.parametrize(
    "write", [written_runs.success, written_runs.four_nodes, written_runs.hang, written_runs.killed_agent]
)
def test_a_picture_is_well_formed_and_every_bar_is_inside_and_has_a_title(write, tmp_path):
    write(tmp_path)
    run = find_run(str(tmp_path))
    for picture in (timeline(run), split_bar(run.time_s())):
        found = bars(picture)
        assert found
        assert all(left >= 0 and left + width <= 100.01 for left, width in found)
        assert picture.count("<title>") >= len(found)


def test_without_times_there_is_no_picture(tmp_path):
    written_runs.torch_only(tmp_path)
    assert timeline(find_run(str(tmp_path))) == ""
    assert split_bar({}) == split_bar(dict.fromkeys(Activity, 0.0)) == ""


def test_the_shares_of_a_split_bar_add_up():
    found = bars(split_bar({Activity.WAITING: 1.0, Activity.TRAINING: 3.0, Activity.LOST: 0.0}))
    assert found == [(0.0, 25.0), (25.0, 75.0)]


def test_a_moment_stays_visible_also_at_the_end():
    found = bars(timeline(run_with(node(span(0, 1e6), span(1e6, 1e6 + 1, Activity.LOST)))))
    assert found[1][1] > 0
    assert sum(found[1]) <= 100.001


def test_nodes_are_aligned_by_what_they_share():
    early = node(span(0, 10), attempts=[Attempt(number=1, generation=1, begin_s=0.0)])
    late = node(span(0, 5, Activity.WAITING), span(5, 15), attempts=[Attempt(number=1, generation=1, begin_s=5.0)])
    first, _, third = bars(timeline(run_with(early, late)))
    assert first[0] == third[0] == pytest.approx(33.333)


def test_a_picture_is_bounded_however_many_nodes_and_attempts_there_are():
    many = [span(at, at + 1, (Activity.TRAINING, Activity.LOST)[at % 2]) for at in range(10 * SPANS_DRAWN_MAX)]
    assert len(bars(timeline(run_with(node(*many))))) <= SPANS_DRAWN_MAX
    assert len(bars(timeline(run_with(*(node(span(0, 1)) for _ in range(2 * NODES_DRAWN_MAX)))))) == NODES_DRAWN_MAX


def test_the_texts_of_a_log_are_no_markup():
    ET.fromstring(timeline(run_with(node(span(0, 1), host="<script>&'\"\x1b"))))


@pytest.mark.parametrize(
    ("activity", "ended", "css_class"),
    [
        (Activity.TRAINING, Outcome.SUCCEEDED, "good"),
        (Activity.TRAINING, Outcome.STOPPED, "stopped"),
        (Activity.TRAINING, Outcome.RUNNING, "running"),
        (Activity.LOST, Outcome.STOPPED, "bad"),
        (Activity.LOST, Outcome.FAILED, "bad"),
        (Activity.LOST, Outcome.LOST, "gone"),
        (Activity.TRAINING, Outcome.UNKNOWN, "gone"),
    ],
)
def test_the_bar_of_an_attempt_shows_how_it_ended(activity, ended, css_class):
    assert bar_class(span(0, 1, activity), Attempt(number=1, outcome=ended)) == css_class


def test_time_without_workers_shows_what_it_went_into():
    assert bar_class(span(0, 1, Activity.WAITING), None) == "waiting"


def test_bad_time_has_a_pattern_that_the_page_defines():
    for css_class, pattern in PATTERNS.items():
        assert f"url(#{pattern})" in swatch(css_class)
        assert f'id="{pattern}"' in DEFINITIONS
    assert "url" not in swatch("good")
    ET.fromstring(DEFINITIONS)
    ET.fromstring(mark_swatch("cause"))


@pytest.mark.parametrize(
    ("length_s", "last"), [(0.004, "4 ms"), (5, "5 s"), (600, "10 min"), (7200, "2 h"), (5 * 86400, "5 d")]
)
def test_the_axis_has_a_few_round_times(length_s, last):
    ticks = re.findall(r'class="axis[^"]*">([^<]*)<', timeline(run_with(node(span(0, length_s)))))
    assert (ticks[0], ticks[-1]) == ("0", last)
    assert 2 <= len(ticks) <= 7
