from __future__ import annotations

import json
import re

import pytest
import written_runs

from holdfast.report import find_run, report_json, report_text
from holdfast.report.units import duration

HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202e\udcff</pre>&amp;\x00"


def test_a_failure_is_explained_with_rank_host_place_log_file_victims_and_advice(tmp_path):
    written_runs.four_nodes(tmp_path)
    text = report_text(find_run(str(tmp_path)))
    for line in (
        "Run job7",
        "  outcome     failed: rank 5 on gpu-host-2: exception ValueError (no restart is left)",
        "  nodes       4, 8 workers",
        "Why it failed",
        "  where       /srv/train.py:23 in step",
        "  log file    /logs/job7_0a1b2c3d2/attempt_1/1/stderr.log",
        "  victims     3 other workers failed with it",
        "  | ValueError: loss is nan after step 1200",
        "Time, of all nodes together",
    ):
        assert f"{line}\n" in text
    assert "What to do: Read the traceback" in text
    assert len(re.findall(r"^  node \d gpu-host-\d  ", text, re.MULTILINE)) == 4


def test_a_hang_shows_where_its_stacks_are_and_who_stood_out(tmp_path):
    written_runs.hang(tmp_path)
    assert "  stacks      stacks-1.txt (rank 2 stood out)\n" in report_text(find_run(str(tmp_path)))


def test_a_thousand_attempts_are_a_screen_of_text_and_all_of_them_are_in_the_json(tmp_path):
    written_runs.many_attempts(tmp_path, 1000)
    run = find_run(str(tmp_path))
    text = report_text(run)
    assert "... 981 attempts left out (--json has all) ..." in text
    assert len(text.splitlines()) < 80
    assert len(json.loads(report_json(run))["nodes"][0]["attempts"]) == 1001


@pytest.mark.parametrize("colours", [False, True])
def test_nothing_in_a_log_can_play_tricks_with_a_terminal(colours, tmp_path):
    run = written_runs.WrittenNode(tmp_path, host=HOSTILE, command=[HOSTILE], version=HOSTILE).starts()
    hostile = dict.fromkeys(("host", "message", "where", "exception", "log_file", "kind"), HOSTILE)
    run.fails(0, **hostile).ends("failed", 5, HOSTILE)
    run.verdict(run.failure(0, **hostile), HOSTILE, HOSTILE).stacks(HOSTILE, [0]).done("failed", HOSTILE)
    found = find_run(str(tmp_path))
    text = re.sub(r"\x1b\[\d+m", "", report_text(found, colours=colours))
    assert "owned" in text
    assert all(char.isprintable() or char == "\n" for char in text)
    assert report_json(found).isascii()


def test_json_has_what_the_text_has(tmp_path):
    written_runs.restarted(tmp_path)
    report = json.loads(report_json(find_run(str(tmp_path))))
    assert (report["run_id"], report["outcome"], report["verdict"]["cause"]["rank"]) == ("job7", "succeeded", 1)
    assert report["verdict"]["advice"].startswith("Read the traceback")
    assert report["time_s"] == {"starting": 0.65, "waiting": 90, "restarting": 5.3, "training": 2400, "lost": 1200}
    (node,) = report["nodes"]
    assert sum(node["time_s"].values()) == pytest.approx(node["length_s"])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.85, "850 ms"), (3.21, "3.2 s"), (59.96, "1 min 00 s"), (245, "4 min 05 s"), (7380, "2 h 03 min")],
)
def test_durations_are_in_two_units_at_most(seconds, text):
    assert duration(seconds) == text
