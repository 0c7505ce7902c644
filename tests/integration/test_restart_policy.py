"""What is started again after which failure, with real jobs on one node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

DEADLINE_S = 60


@pytest.fixture
def run(tmp_path):
    """Run a script under `holdfast run`; returns the exit code, stderr, and the events by name."""

    def start(text, *options, workers=1, **popen):
        (tmp_path / "train.py").write_text(text)
        command = [sys.executable, "-m", "holdfast", "run", "--nproc-per-node", str(workers)]
        command += ["--log-dir", str(tmp_path / "logs"), *options, "train.py"]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, **popen)

    def outcome(job):
        _, stderr = job.communicate(timeout=DEADLINE_S)
        (path,) = (tmp_path / "logs").glob("*/events.jsonl")
        told = {}
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["name"].startswith("holdfast."):
                details = event["metadata"]["details"]
                told.setdefault(event["name"].removeprefix("holdfast."), []).append(details)
        return job.returncode, stderr, told

    def whole(text, *options, **others):
        return outcome(start(text, *options, **others))

    whole.start, whole.outcome = start, outcome
    return whole


def decisions(told):
    return [verdict["decision"] for verdict in told["verdict"]]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("def f(:\n", "a syntax error does not go away by itself"),
        ("import no_such_module_anywhere\n", "a missing module will be missing again"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--what'])\n", "the program refused its arguments"),
    ],
)
def test_what_cannot_go_away_by_itself_is_not_started_again(run, script, reason):
    code, stderr, told = run(script, "--max-restarts", "3")
    assert code == 1
    assert f"not restarted: {reason}" in stderr
    assert decisions(told) == ["stop"]
    assert len(told["attempt.started"]) == 1


def test_a_module_that_python_does_not_find_is_not_started_again(run):
    code, stderr, told = run("", "--max-restarts", "3", "-m", "json.no_such_module_anywhere")
    assert code == 1
    assert "not restarted: a missing module will be missing again" in stderr
    assert "Check the name after -m" in stderr
    assert len(told["attempt.started"]) == 1


def test_the_same_exception_at_the_same_line_is_tried_once_more_and_not_again(run):
    code, stderr, told = run("raise ValueError('always')\n", "--max-restarts", "3")
    assert code == 1
    assert "twice within seconds; --restart-policy always ignores this" in stderr
    assert decisions(told) == ["restart", "stop"]


def test_the_policy_always_spends_the_whole_budget(run):
    code, _, told = run("raise ValueError('always')\n", "--max-restarts", "3", "--restart-policy", "always")
    assert code == 1
    assert decisions(told) == ["restart", "restart", "restart", "stop"]


def test_exit_codes_say_too_little_to_give_up(run):
    code, stderr, told = run("raise SystemExit(7)\n", "--max-restarts", "2")
    assert code == 1
    assert decisions(told) == ["restart", "restart", "stop"]
    assert "  restarts  : 2 of 2\n" in stderr


def test_a_window_gives_the_budget_back(run):
    script = """
import time
time.sleep(0.2)
with open("count", "a+") as file:
    file.write("x")
    file.seek(0)
    raise SystemExit(len(file.read()) < 4)
"""
    code, _, told = run(script, "--max-restarts", "1", "--restart-window", "0.1")
    assert code == 0
    assert decisions(told) == ["restart"] * 3
    assert [attempt["restart"] for attempt in told["attempt.started"]] == [0, 1, 2, 3]


def test_a_pause_comes_after_faults_in_a_row_and_a_signal_ends_it(run):
    script = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    job = run.start(script, "--max-restarts", "9", env={**os.environ, "LOGLEVEL": "WARNING"})
    lines = []
    for line in job.stderr:
        lines.append(line)
        if "waiting 2 s before" in line:
            break
    os.kill(job.pid, signal.SIGTERM)
    code, _, told = run.outcome(job)
    assert code == 128 + signal.SIGTERM
    pauses = [line.partition("waiting ")[2].partition(" s")[0] for line in lines if "before the next attempt" in line]
    assert pauses == ["0.5", "1", "2"]
    assert told["run.ended"][0]["outcome"] == "interrupted"
    assert told["failure"][0]["kind"] == "killed"
