"""A report is about one job, with real jobs: whichever way it is named, and whatever else has the same run id."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import written_runs

from holdfast.cli.command import main
from holdfast.report import find_run
from holdfast.report.records import Outcome

DEADLINE_S = 60
LOOK_AGAIN_S = 0.02

GOOD = "print('fine')\n"
BAD = "raise ValueError('loss is nan')\n"
LOSES_ITS_RUN = """
import os, shutil, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    run = os.path.abspath(os.environ["TORCHELASTIC_ERROR_FILE"] + "/../../..")
    events = os.path.join(run, "events.jsonl")
    while not os.path.exists(events) or b"attempt.started" not in open(events, "rb").read():
        time.sleep(0.01)  # the agent begins its log when the first workers run
    shutil.rmtree(run)
    raise KeyError("first")
print("up", flush=True)
sys.stdin.read()
raise ValueError("loss is nan")
"""
UNTIL_TOLD = "import sys\nprint('up', flush=True)\nsys.stdin.read()\n"


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def start(tmp_path):
    """Start a script under `holdfast run`, which ends with the test."""
    started = []

    def popen(name, text, *options, log_dir="logs", **more):
        (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "holdfast", "run", "--log-dir", str(tmp_path / log_dir), *options, name]
        started.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, text=True, **more))
        return started[-1]

    yield popen
    for job in started:
        job.kill()
        job.communicate(timeout=DEADLINE_S)


@pytest.fixture
def run(start, tmp_path):
    """Run a script to its end; returns its directory."""

    def to_the_end(name, text, *options, log_dir="logs"):
        before = set((tmp_path / log_dir).glob("*"))
        start(name, text, *options, log_dir=log_dir).communicate(timeout=DEADLINE_S)
        (directory,) = set((tmp_path / log_dir).glob("*")) - before
        return directory

    return to_the_end


def shown(capsys, *words):
    assert main(["report", *map(str, words)]) == 0
    return capsys.readouterr().out


def in_json(capsys, *words):
    return json.loads(shown(capsys, *words, "--json"))


@pytest.mark.parametrize("log_dirs", [("logs", "logs"), ("first", "second")])
def test_a_failed_run_and_a_later_good_one_are_two_jobs(log_dirs, run, tmp_path, capsys):
    bad = run("bad.py", BAD, *static(), log_dir=log_dirs[0])
    good = run("good.py", GOOD, *static(), log_dir=log_dirs[1])
    for words in ((), ("none",), (good,), (tmp_path / log_dirs[1],)):
        report = in_json(capsys, *words)
        assert (report["run_id"], report["outcome"], report["verdict"]) == ("none", "succeeded", None), words
        assert [node["command"][-1] for node in report["nodes"]] == ["good.py"]
        assert "bad.py" not in shown(capsys, *words)
    report = in_json(capsys, bad)
    assert (report["outcome"], report["verdict"]["cause"]["exception"]) == ("failed", "ValueError")
    assert [node["command"][-1] for node in report["nodes"]] == ["bad.py"]
    # By its id it is found again, also by the beginning of it.
    assert len(report["job"]) == 16
    for name in (report["job"], report["job"][:8]):
        assert in_json(capsys, name) == report
    assert in_json(capsys)["job"] != report["job"]


def test_a_run_id_of_several_jobs_is_the_newest_and_a_note_says_so(run, capsys):
    for name in ("a.py", "b.py", "c.py"):
        run(name, GOOD, *static())
    run("other.py", GOOD, "--rdzv-id", "other")
    text = shown(capsys, "none")
    assert "c.py" in text
    assert "2 more jobs have the run id 'none'; this is the newest. To see another," in text
    assert "more job" not in shown(capsys, "other")
    assert "more job" not in shown(capsys)


def test_each_job_has_a_line_in_the_list_with_an_id_that_names_it(run, capsys):
    for name in ("a.py", "b.py"):
        run(name, GOOD)
    assert main(["runs"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    jobs = [line.split()[1] for line in lines]
    assert [in_json(capsys, job)["nodes"][0]["command"][-1] for job in jobs] == ["b.py", "a.py"]
    assert main(["runs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["job"][:8] for each in listed] == jobs
    assert [each["agents"] for each in listed] == [1, 1]


def test_how_many_nodes_and_restarts_a_job_may_have_is_told(run, capsys):
    run(
        "job.py",
        GOOD,
        "--nnodes",
        "1:4",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{free_port()}",
        "--rdzv-conf",
        "last_call_timeout=0.1",
        "--max-restarts",
        "5",
    )
    report = in_json(capsys)
    assert (report["min_nodes"], report["max_nodes"], report["nodes_at_once"]) == (1, 4, 1)
    assert (report["restarts"], report["max_restarts"]) == (0, 5)
    (node,) = report["nodes"]
    assert (node["min_nodes"], node["max_nodes"], node["max_restarts"]) == (1, 4, 5)
    assert "  nodes       1 (--nnodes 1:4), 1 worker\n" in shown(capsys)
    assert "  restarts    0 of 5\n" in shown(capsys)


def test_a_job_that_runs_and_then_is_killed(start, tmp_path, capsys):
    job = start("job.py", UNTIL_TOLD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout.readline() == "up\n"
    wait_for_events(tmp_path / "logs", "holdfast.attempt.started")
    text = shown(capsys)
    assert "  outcome     running\n" in text
    assert re.search(r"  length +\S+ m?s so far\n", text)
    assert "no end" not in text
    job.send_signal(signal.SIGKILL)
    job.wait(DEADLINE_S)
    text = shown(capsys)
    assert "  outcome     lost\n" in text
    assert "The agent was lost: it or its machine was killed." in text


def test_a_run_that_lost_its_directory_is_found_reported_and_asked_in_its_new_one(start, tmp_path, capsys):
    options = ("--rdzv-id", "job7", "--max-restarts", "1", "--log-dir", str(tmp_path / "logs"))
    job = start("job.py", LOSES_ITS_RUN, *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout.readline() == "up\n"
    (events,) = (tmp_path / "logs").glob("*/events.jsonl")
    directory = events.parent  # in the lost one, there may be the error file that the first worker still left
    assert main(["stacks", "job7"]) == 0
    assert f"kept in {directory}/stacks/" in capsys.readouterr().out
    assert in_json(capsys, "job7")["outcome"] == "running"
    job.communicate(timeout=DEADLINE_S)
    report = in_json(capsys, "job7")
    assert (report["outcome"], report["verdict"]["cause"]["exception"]) == ("failed", "ValueError")
    (node,) = report["nodes"]
    assert node["directory"] == str(directory)
    assert [attempt["outcome"] for attempt in node["attempts"]] == ["failed", "failed"]
    assert [failure["kind"] for failure in node["attempts"][0]["failures"]] == ["exception"]
    (warning,) = report["warnings"]
    assert "was removed or replaced while the run used it" in warning["text"]
    assert list((tmp_path / "logs").glob("*/events.jsonl")) == [events]


def test_nodes_that_were_told_their_ranks_are_one_job_and_the_next_is_another(start, tmp_path, capsys):
    """They meet in a store, and share the job's id."""
    port = free_port()
    for _ in range(2):
        nodes = [
            start(
                "job.py",
                UNTIL_TOLD,
                "--nnodes",
                "2",
                "--node-rank",
                str(rank),
                "--master-port",
                str(port),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for rank in range(2)
        ]
        for node in nodes:
            assert node.stdout.readline() == "up\n"
        for node in nodes:  # all of them first: one that is done waits for the others
            node.stdin.close()
            node.stdin = None
        for node in nodes:
            node.communicate(timeout=DEADLINE_S)
            assert node.returncode == 0
    assert len(os.listdir(tmp_path / "logs")) == 4
    for words in ((), ("none",), (tmp_path / "logs",)):
        report = in_json(capsys, *words)
        assert [node["group_rank"] for node in report["nodes"]] == [0, 1], words
        assert (report["outcome"], report["nodes_at_once"]) == ("succeeded", 2)
        assert report["job"]
        assert not any("share no job id" in note for note in report["notes"])
    assert any(note.startswith("1 more job has the run id 'none'") for note in in_json(capsys, "none")["notes"])
    assert main(["runs", "--json"]) == 0
    assert [each["agents"] for each in json.loads(capsys.readouterr().out)] == [2, 2]


def wait_for_events(log_dir, name):
    """Until an agent has written an event of this name: that is after its workers were started, and nothing tells."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(name in path.read_text() for path in log_dir.glob("*/events.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(LOOK_AGAIN_S)


def static():
    """For a node that was told who it is. Like all that name no --rdzv-id, such a job has the run id "none"."""
    return ("--nnodes", "1", "--node-rank", "0", "--master-port", str(free_port()))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_what_reads_a_directory_of_an_elastic_job_names_the_others(tmp_path, capsys):
    nodes = written_runs.three_machines(tmp_path)
    run = find_run(nodes[2].directory)
    assert (run.outcome, len(run.nodes)) == (Outcome.UNKNOWN, 1)
    assert run.notes[0] == f"This shows one agent. The job has 3 more: holdfast report '{tmp_path}'"
    assert Path(nodes[2].directory).is_dir()
    assert len(in_json(capsys, tmp_path)["nodes"]) == 4


def test_a_node_that_was_done_and_left_does_not_make_a_success_of_a_job_that_failed(tmp_path):
    """It exits with 0 when the others take too long, or when it is cut off. How the job ends comes after that."""
    common = {"job": "beef0123456789ab", "backend": "c10d", "min_nodes": 2, "max_nodes": 2}
    done = written_runs.WrittenNode(tmp_path, host="machine1", rank=0, random="aaaa0000", **common)
    done.passes(0.1).starts(generation=1, nodes=2).ends("succeeded", 20).done("succeeded")
    failed = written_runs.WrittenNode(tmp_path, host="machine2", rank=1, random="aaaa0001", **common)
    failed.passes(0.1).starts(generation=1, nodes=2).ends("failed", 400, "rank 1 failed").fails(1)
    failed.verdict(failed.failure(1), "stop", "no restart is left").done("failed", "no restart is left")
    run = find_run(str(tmp_path))
    assert (run.outcome, run.reason, len(run.nodes)) == (Outcome.FAILED, "no restart is left", 2)
