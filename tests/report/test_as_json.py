"""A report for other programs."""

from __future__ import annotations

import json

import pytest
import written_runs

from holdfast.report import find_run, report_json
from holdfast.report.as_json import FORMAT


def test_json_has_what_the_text_has(tmp_path):
    written_runs.restarted(tmp_path)
    report = json.loads(report_json(find_run(str(tmp_path))))
    assert (report["run_id"], report["outcome"], report["verdict"]["cause"]["rank"]) == ("job7", "succeeded", 1)
    assert report["verdict"]["advice"].startswith("Read the traceback")
    assert report["time_s"] == {"starting": 0.65, "waiting": 90, "restarting": 5.3, "training": 2400, "lost": 1200}
    (node,) = report["nodes"]
    assert sum(node["time_s"].values()) == pytest.approx(node["length_s"])


def test_the_format_and_the_fields_that_programs_rely_on(tmp_path):
    written_runs.success(tmp_path)
    report = json.loads(report_json(find_run(str(tmp_path))))
    assert report["format"] == FORMAT == 1, "a field that is removed or means something else is another format"
    assert set(report) >= {
        *("run_id", "job", "outcome", "reason", "verdict", "min_nodes", "max_nodes", "nodes_at_once", "restarts"),
        *("max_restarts", "length_s", "time_s", "warnings", "nodes", "notes"),
    }
    assert (report["outcome"], report["verdict"], report["warnings"]) == ("succeeded", None, [])
    (attempt,) = report["nodes"][0]["attempts"]
    assert (attempt["ranks"], attempt["failures"], attempt["verdict"]) == ([0, 1], [], None)


def test_each_attempt_has_its_failures_and_its_verdict(tmp_path):
    written_runs.four_nodes(tmp_path)
    report = json.loads(report_json(find_run(str(tmp_path))))
    assert (report["verdict"]["decision"], report["verdict"]["victims"]) == ("stop", 3)
    (cause,) = (node for node in report["nodes"] if node["host"] == "gpu-host-2")
    assert [attempt["failures"][0]["kind"] for attempt in cause["attempts"]] == ["exception", "exception"]
    assert [attempt["verdict"]["decision"] for attempt in cause["attempts"]] == ["restart", "stop"]


def test_what_is_unknown_is_empty_and_nothing_fails(tmp_path):
    written_runs.torch_only(tmp_path)
    report = json.loads(report_json(find_run(str(tmp_path))))
    assert (report["time_s"], report["nodes"][0]["spans"]) == ({}, [])
