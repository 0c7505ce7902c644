"""A list of jobs, as text and for programs."""

from __future__ import annotations

import json
import re

import pytest
import written_runs

from holdfast.report import find_run
from holdfast.report.listing import ID_MAX_CHARS, listing_json, listing_text
from holdfast.report.records import Node, Outcome, Run
from holdfast.report.units import SHOWN_ID_CHARS


@pytest.fixture
def runs(tmp_path):
    written_runs.success(tmp_path / "good")
    written_runs.four_nodes(tmp_path / "bad", run_id="job8")
    written_runs.killed_agent(tmp_path / "lost", run_id="job9")
    return [find_run(str(tmp_path / name)) for name in ("good", "bad", "lost")]


def test_each_job_is_a_line_in_the_given_order_and_columns_line_up(runs):
    title, *lines = listing_text(runs).splitlines()
    assert [line.split()[0] for line in lines] == ["job7", "job8", "job9"]
    at = title.index("outcome")
    assert [line[at] for line in lines] == ["✓", "✕", "?"]
    assert lines[1].endswith(" and 3 more")
    assert "  > 1 min 40 s  " in lines[2], "its end is not known"


def test_colours_are_added_to_the_outcome_and_change_nothing_else(runs):
    painted = listing_text(runs, colours=True)
    assert re.sub(r"\x1b\[\d+m", "", painted) == listing_text(runs)
    assert "\x1b[32m✓ succeeded\x1b[0m" in painted
    assert "\x1b[31m✕ failed: rank 5 on gpu-host-2" in painted
    assert "\x1b" not in listing_text(runs)


def test_a_job_of_which_nothing_is_known_has_a_line():
    _, line = listing_text([Run(run_id="", outcome=Outcome.UNKNOWN, nodes=[Node(directory="/x")])]).splitlines()
    assert re.split("  +", line) == ["-", "-", "unknown", "> 0 ms", "-", "-", "? unknown", "/x"]


def test_no_text_of_a_log_breaks_the_table():
    hostile = "\x1b[2Jline\nline" + "x" * 999
    run = Run(run_id=hostile, job=hostile, outcome=Outcome.FAILED, reason=hostile, nodes=[Node(directory="/\nx")])
    title, line = listing_text([run]).splitlines()
    assert line.isprintable()
    assert title.index("job id") <= ID_MAX_CHARS + len(r"\x1b") + 2
    assert title.index("started") - title.index("job id") == SHOWN_ID_CHARS + 2


def test_programs_get_the_cause_and_all_directories(runs):
    good, bad, lost = json.loads(listing_json(runs))
    assert (good["outcome"], good["cause"], good["nodes"], good["workers"]) == ("succeeded", None, 1, 2)
    assert bad["cause"] == {
        "rank": 5,
        "host": "gpu-host-2",
        "kind": "exception",
        "exception": "ValueError",
        "where": "/srv/train.py:23 in step",
    }
    assert (bad["agents"], bad["restarts"], len(bad["directories"])) == (4, 1, 4)
    assert bad["directory"] in bad["directories"]
    assert lost["outcome"] == "unknown"
