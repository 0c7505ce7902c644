from __future__ import annotations

import json
import re

import pytest
import written_runs

from holdfast.report import find_run, report_json, report_page, report_text

HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202e\udcff</pre>&amp;\x00"


def test_a_failure_is_explained_with_rank_host_place_log_file_victims_and_advice(tmp_path):
    written_runs.four_nodes(tmp_path)
    text = report_text(find_run(str(tmp_path)))
    for line in (
        "Run job7",
        "  outcome     failed: rank 5 on gpu-host-2: exception ValueError (no restart is left)",
        "  nodes       4 (--nnodes 3:4), 8 workers",
        "Why it failed",
        "  where       /srv/train.py:23 in step",
        "  log file    /logs/job7_0a1b2c3d2/attempt_1/1/stderr.log",
        "  victims     3 other workers failed with it",
        "  | ValueError: loss is nan after step 1200",
        "Time of all agents together",
    ):
        assert f"{line}\n" in text
    assert "What to do: Read the traceback" in text
    assert len(re.findall(r"^  node \d gpu-host-\d  ", text, re.MULTILINE)) == 4


def test_workers_of_a_program_that_cannot_start_are_no_victims_of_each_other(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts().fails(0).ends("failed", 5, "")
    run.verdict({**run.failure(0), "exception": "SyntaxError"}, "stop", "", victims=3)
    found = find_run(str(tmp_path))
    assert "  also        3 other workers failed\n" in report_text(found)
    assert "<dt>also</dt>" in report_page(found)
    assert "failed with it" not in report_text(found) + report_page(found)


def test_a_hang_shows_where_its_stacks_are_and_who_stood_out(tmp_path):
    written_runs.hang(tmp_path)
    assert "  stacks      stacks-1.txt (rank 2 stood out)\n" in report_text(find_run(str(tmp_path)))


def test_a_failure_shows_where_the_workers_were_that_were_stopped_for_it(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts().fails(0).ends("failed", 5, "")
    run.verdict(run.failure(0), "stop", "")
    where = ["rank 3: /srv/save.py:5 in save", *(f"rank {rank}: {HOSTILE}" for rank in range(100))]
    run.event("stacks", attempt=1, reason="", file="stacks/survivors-1.txt", outliers=[], where=where)
    text = report_text(find_run(str(tmp_path)))
    assert "  stacks      stacks/survivors-1.txt\n              rank 3: /srv/save.py:5 in save\n" in text
    assert text.count("alert(1)") == 9
    assert "\x1b" not in text


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
    run.verdict(run.failure(0, **hostile), HOSTILE, HOSTILE).stacks(HOSTILE, [0]).warns(HOSTILE, 0)
    run.done("failed", HOSTILE)
    common = {"host": HOSTILE, "job": HOSTILE, "agent": HOSTILE, "run_id": "none", "command": [HOSTILE]}
    for rank in range(2):  # with notes on agents that have no end
        written_runs.WrittenNode(tmp_path / "lost", rank=rank, **common).starts(generation=1 + rank, nodes=2)
    lost = find_run(str(tmp_path / "lost"))
    assert len(lost.notes) == 2
    assert all(char.isprintable() or char == "\n" for char in report_text(lost))
    found = find_run(str(tmp_path / f"job7_0a1b2c3d{0}"))
    text = re.sub(r"\x1b\[\d+m", "", report_text(found, colours=colours))
    assert "owned" in text
    assert all(char.isprintable() or char == "\n" for char in text)
    assert report_json(found).isascii()


def test_no_text_of_a_log_paints_or_adds_a_line(tmp_path):
    """Codes of our own colours, too: what is painted is what is shown without colours, and nothing else."""
    hostile = "\x1b[31mred\x1b[0m\nWhy it failed"
    run = written_runs.WrittenNode(tmp_path, host=hostile, command=[hostile], version=hostile).starts()
    fields = dict.fromkeys(("host", "message", "where", "log_file"), hostile)
    failure = run.fails(0, kind="exit", exception="", **fields).ends("failed", 5, hostile)
    failure.verdict(run.failure(0, kind="exit", exception="", **fields), hostile, hostile)
    failure.stacks(hostile, [0]).warns(hostile, 0)
    run.done("failed", hostile)
    found = find_run(str(tmp_path))
    plain, painted = report_text(found), report_text(found, colours=True)
    assert "What to do: " in plain
    assert "\x1b" not in plain
    bare = re.sub(r"\x1b\[\d+m", "", painted)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()
    assert plain.count("\nWhy it failed") == 1


def test_three_machines_are_three_nodes_and_four_agents(tmp_path):
    written_runs.three_machines(tmp_path)
    text = report_text(find_run(str(tmp_path)))
    for line in (
        "  job id      beef0123456789ab",
        "  outcome     succeeded",
        "  nodes       3 (--nnodes 2:3), 6 workers",
        "  agents      4, on 3 machines: machine3 had 2",
        "  restarts    0 (--max-restarts 0)",
        "machine3 (agent 1) was lost in generation 1: the agent or its machine was killed, or cut off. The",
    ):
        assert f"{line}\n" in text
    assert "no end" not in text
    assert "share no job id" not in text
    labels = re.findall(r"^  (\S.*\S)  +[w.=xr ]+$", text.partition("lost  ")[2], re.MULTILINE)
    assert labels == ["node 0 machine1", "node 1 machine2", "node 2 machine3 (agent 2)", "machine3 (agent 1), lost"]
    report = json.loads(report_json(find_run(str(tmp_path))))
    assert (report["job"], report["min_nodes"], report["max_nodes"]) == ("beef0123456789ab", 2, 3)
    assert (report["nodes_at_once"], len(report["nodes"])) == (3, 4)
    assert [node["outcome"] for node in report["nodes"]] == ["succeeded"] * 3 + ["lost"]


def test_a_job_that_shrank_says_so(tmp_path):
    node = written_runs.WrittenNode(tmp_path, job="f00d", min_nodes=1, max_nodes=3).starts(generation=1, nodes=3)
    node.ends("stopped", 9, "lost two").starts(generation=2, nodes=2).ends("succeeded", 9).done("succeeded")
    text = report_text(find_run(str(tmp_path)))
    assert "  nodes       3 (told by 1 of them) (--nnodes 1:3), 2 at the end, 4 workers\n" in text


def test_more_restarts_than_the_budget_are_explained(tmp_path):
    run = written_runs.WrittenNode(tmp_path, max_restarts=1).starts(restart=5).ends("succeeded", 9)
    run.done("succeeded", restarts=5)
    line = "  restarts    5 (of 1; time without failures resets the count)\n"
    assert line in report_text(find_run(str(tmp_path)))


def test_warnings_are_listed(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts().warns("it crashed after it had ended well", 1).warns("disk full")
    run.ends("succeeded", 9).done("succeeded")
    found = find_run(str(tmp_path))
    told = "Warnings\n  rank 1 on node0, attempt 1: it crashed after it had ended well\n  node0, attempt 1: disk full\n"
    assert told in report_text(found)
    assert json.loads(report_json(found))["warnings"] == [
        {"host": "node0", "text": "it crashed after it had ended well", "rank": 1, "attempt": 1},
        {"host": "node0", "text": "disk full", "rank": None, "attempt": 1},
    ]
    page = report_page(found)
    assert "<h2>Warnings</h2>" in page
    assert "<li>rank 1 on node0, attempt 1: it crashed after it had ended well</li>" in page


def test_many_warnings_are_a_few_lines(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts()
    for number in range(200):
        run.warns(f"warning {number}")
    text = report_text(find_run(str(tmp_path)))
    assert "  and 180 more (--json has all)\n" in text
    assert len(text.splitlines()) < 60
