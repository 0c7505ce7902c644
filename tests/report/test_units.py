"""Durations, times, shares and lines, as people read them."""

from __future__ import annotations

import pytest

from holdfast.errors.failure import Failure
from holdfast.report.records import Attempt, Node, Outcome, Round, Run, Verdict, WarningNote
from holdfast.report.units import (
    COMMAND_MAX_CHARS,
    HOST_MAX_CHARS,
    OUTCOME_SIGNS,
    agents,
    command,
    counted,
    decided,
    duration,
    last_lines,
    length,
    moment,
    names,
    nodes,
    one_line,
    others_failed,
    outcome,
    restarts,
    share,
    warning,
    what,
    who,
    why,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.85, "850 ms"),
        (3.21, "3.2 s"),
        (59.96, "1 min 00 s"),
        (245, "4 min 05 s"),
        (7380, "2 h 03 min"),
        (457200, "5 d 07 h"),
    ],
)
def test_durations_are_in_two_units_at_most(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("timestamp", [0.0, -1.0, 1e300, float("inf"), float("nan")])
def test_a_time_that_is_none_is_unknown(timestamp):
    assert moment(timestamp) == "unknown"


def test_a_time_has_its_zone():
    assert moment(1_770_000_000.0)[:5] == "2026-"
    assert moment(1_770_000_000.0).rpartition(" ")[2][0] in "+-"


def test_shares_and_counts():
    assert (share(1, 3), share(1, 0)) == ("33 %", "-")
    assert [counted(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert counted(2, "process", "processes") == "2 processes"


def test_lines_of_a_log_are_safe_and_short():
    assert one_line("\x1b[31mred\tline") == "\\x1b[31mred line"
    assert len(one_line("x" * 9_999, HOST_MAX_CHARS)) <= HOST_MAX_CHARS
    assert command(["a", "b\nc"]) == "a b\\nc"
    assert len(command(["x" * 9_999])) == COMMAND_MAX_CHARS + len(" ...")


def test_the_end_of_a_text_says_how_much_is_missing():
    assert last_lines("a\nb\n", 5, 99) == ["a", "b"]
    assert last_lines("a\nb\nc\n", 2, 99) == ["... (6 characters in all)", "b", "c"]
    assert last_lines("x" * 1000, 5, 10) == ["... (1,000 characters in all)", "x" * 10]
    assert last_lines("\x1b[2J", 5, 99) == ["\\x1b[2J"]


RAISED = Failure(rank=3, host="node1", kind="exception", exception="ValueError", where="train.py:3 in main")
KILLED = Failure(rank=-1, kind="killed", exit_code=-9)


def test_who_failed_and_how():
    assert (who(RAISED), what(RAISED)) == ("rank 3 on node1", "exception ValueError")
    assert (who(KILLED), what(KILLED)) == ("a worker", "killed, exit code -9")


def test_why_an_attempt_ended_and_what_was_decided():
    verdict = Verdict(cause=RAISED, victims=2, decision="stop", reason="no restart is left")
    key = ("attempt", 1)
    assert why(Round(key=key, attempts={}, verdict=verdict)) == (
        "rank 3 on node1: exception ValueError at train.py:3 in main"
    )
    assert why(Round(key=key, attempts={}, reason="a node\njoined")) == "a node"
    assert decided(verdict) == "stop: no restart is left"
    assert decided(Verdict(cause=RAISED)) == ""
    assert others_failed(verdict) == {"victims": "2 other workers failed with it"}
    assert others_failed(Verdict(cause=RAISED)) == {}


def job(ended=Outcome.SUCCEEDED, *, agents_here=1, **node):
    here = [Node(directory="", host="node0", length_s=90.0, version="1", **node) for _ in range(agents_here)]
    return Run(run_id="job", outcome=ended, nodes=here)


def test_how_a_run_ended():
    assert outcome(job()) == "succeeded"
    failed = Run(run_id="", outcome=Outcome.FAILED, reason="no restart is left", verdict=Verdict(cause=RAISED))
    assert outcome(failed) == "failed: rank 3 on node1: exception ValueError (no restart is left)"
    assert set(OUTCOME_SIGNS) == set(Outcome)


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (Outcome.SUCCEEDED, "1 min 30 s"),
        (Outcome.RUNNING, "1 min 30 s so far"),
        (Outcome.LOST, "at least 1 min 30 s"),
        (Outcome.UNKNOWN, "at least 1 min 30 s"),
    ],
)
def test_the_length_of_a_run_without_an_end_is_no_more_than_what_is_known(ended, text):
    assert length(job(ended)) == text


@pytest.mark.parametrize(
    ("count", "budget", "text"),
    [(1, 3, "1 of 3"), (0, 0, "0 (--max-restarts 0)"), (4, 3, "4 (of 3; time without failures resets the count)")],
)
def test_restarts_are_told_with_their_budget(count, budget, text):
    assert restarts(job(restarts=count, max_restarts=budget)) == text


def test_nodes_and_agents_and_their_names():
    run = job(agents_here=2)
    assert (nodes(run), agents(run), names(run)) == ("2", "", ["node node0 (agent 1)", "node node0 (agent 2)"])
    run.rounds = [Round(key=("attempt", 1), attempts={0: Attempt(number=1, nodes=1, world_size=2)})]
    assert (nodes(run), agents(run)) == ("1, 2 workers", "2, on 1 machine: node0 had 2")


def test_a_warning_names_its_worker_or_its_machine():
    node = Node(directory="", host="node0")
    assert warning(node, WarningNote(text="slow", rank=1, attempt=2)) == "rank 1 on node0, attempt 2: slow"
    assert warning(node, WarningNote(text="full", attempt=1)) == "node0, attempt 1: full"
