"""From events to a run: attempts, failures, verdicts, and what the time went into."""

from __future__ import annotations

import json

import pytest
import written_runs
from hypothesis import given
from hypothesis import strategies as st

from holdfast.report.entries import Log, parse_line, read_log
from holdfast.report.joining import run_of
from holdfast.report.records import Activity, Outcome
from holdfast.report.timeline import Presence, node_of
from holdfast.run_directory import RunDirectory

EVERY_RUN = [
    written_runs.success,
    written_runs.restarted,
    written_runs.hang,
    written_runs.killed_agent,
    written_runs.without_attempt,
]


def told(written, presence=None):
    return node_of(read_log(RunDirectory(written.directory)), written.directory, presence)


def spent(node):
    return {activity: round(seconds, 3) for activity, seconds in node.time_s().items() if seconds}


def test_a_run_that_succeeds(tmp_path):
    node = told(written_runs.success(tmp_path))
    assert (node.run_id, node.host, node.outcome) == ("job7", "node0", Outcome.SUCCEEDED)
    assert node.command == ["train.py", "--lr", "0.1"]
    assert spent(node) == {Activity.STARTING: 0.65, Activity.TRAINING: 3600}
    (attempt,) = node.attempts
    assert (attempt.outcome, attempt.ranks, attempt.pids) == (Outcome.SUCCEEDED, [0, 1], [1000, 1001])


def test_what_a_failed_attempt_did_is_lost_and_what_follows_it_is_a_restart(tmp_path):
    node = told(written_runs.restarted(tmp_path))
    assert spent(node) == {
        Activity.STARTING: 0.65,
        Activity.WAITING: 90,
        Activity.RESTARTING: 5.3,
        Activity.TRAINING: 2400,
        Activity.LOST: 1200,
    }
    first, second = node.attempts
    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.SUCCEEDED)
    assert first.verdict.decision == "restart"
    assert first.failures[0].exception == "ValueError"
    assert node.restarts == 1


@pytest.mark.parametrize("write", EVERY_RUN)
@pytest.mark.parametrize("presence", [None, Presence(is_alive=False), Presence(is_alive=True, monotonic=99_999.0)])
def test_the_activities_add_up_to_the_length_of_the_run(write, presence, tmp_path):
    node = told(write(tmp_path), presence)
    assert sum(node.time_s().values()) == pytest.approx(node.length_s)
    assert node.spans[0].begin_s == 0
    assert node.spans[-1].end_s == pytest.approx(node.length_s)
    for span, following in zip(node.spans, node.spans[1:], strict=False):
        assert span.end_s == following.begin_s


def test_nodes_that_come_and_go_cost_no_training(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts(generation=1).ends("stopped", 100, "a node joined")
    run.starts(generation=2, waited_s=3).ends("succeeded", 200).done("succeeded")
    assert spent(told(run))[Activity.TRAINING] == 300


def test_without_an_end_and_with_a_living_agent_the_run_goes_on(tmp_path):
    written = written_runs.killed_agent(tmp_path)
    node = told(written, Presence(is_alive=True, monotonic=written.now + 50))
    assert (node.outcome, node.attempts[0].outcome) == (Outcome.RUNNING, Outcome.RUNNING)
    assert spent(node)[Activity.TRAINING] == 150


def test_without_an_end_and_without_its_agent_the_run_is_lost(tmp_path):
    node = told(written_runs.killed_agent(tmp_path), Presence(is_alive=False))
    assert (node.outcome, node.attempts[0].outcome) == (Outcome.LOST, Outcome.LOST)
    assert spent(node)[Activity.LOST] == 100


def test_without_an_end_and_on_another_machine_nobody_knows(tmp_path):
    node = told(written_runs.killed_agent(tmp_path))
    assert (node.outcome, node.attempts[0].outcome) == (Outcome.UNKNOWN, Outcome.UNKNOWN)
    assert "Only on its machine can you see" in run_of([node]).notes[0]


def test_a_run_without_an_attempt_was_spent_waiting(tmp_path):
    node = told(written_runs.without_attempt(tmp_path))
    assert (node.attempts, node.outcome, spent(node)) == ([], Outcome.FAILED, {Activity.WAITING: 600})


def test_torchs_events_tell_of_attempts_and_failures_but_not_of_time(tmp_path):
    node = told(written_runs.torch_only(tmp_path))
    assert (node.run_id, node.outcome, node.length_s, node.spans) == ("job7", Outcome.SUCCEEDED, 60, [])
    assert [attempt.outcome for attempt in node.attempts] == [Outcome.FAILED, Outcome.SUCCEEDED]
    (failure,) = node.attempts[0].failures
    assert failure.message == written_runs.TRACEBACK
    assert (failure.rank, failure.exit_code, failure.pid) == (0, 1, 77)
    assert run_of([node]).verdict.cause is failure


def test_the_cause_without_a_verdict_is_the_first_that_is_nobodys_victim(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts().fails(0, "communication").passes(1).fails(1).ends("failed", 9)
    verdict = run_of([told(run)]).verdict
    assert (verdict.cause.rank, verdict.victims) == (1, 1)


def test_the_budget_is_the_jobs_and_not_the_nodes_own(tmp_path):
    run = written_runs.WrittenNode(tmp_path, max_restarts=1)
    run.starts(generation=1, max_restarts=5).ends("failed", 9).starts(restart=1, generation=2, max_restarts=5)
    assert told(run.ends("succeeded", 9).done("succeeded", restarts=1)).max_restarts == 5


def test_warnings_are_told_and_events_of_later_versions_are_passed_over(tmp_path):
    run = written_runs.WrittenNode(tmp_path).starts().warns("crashed after it had ended well", 1).warns("disk is full")
    run.event("survivors", attempt=7, ranks=[1]).event("of.later", attempt={"x": 1})
    node = told(run.ends("succeeded", 9).done("succeeded"))
    assert [(each.text, each.rank, each.attempt) for each in node.warnings] == [
        ("crashed after it had ended well", 1, 1),
        ("disk is full", None, 1),
    ]
    assert (node.skipped_lines, len(node.attempts), node.outcome) == (0, 1, Outcome.SUCCEEDED)


@pytest.mark.parametrize("nonsense", [None, "text", [], {}, -1, 1e400, float("nan"), 10**400, True, ["x", None]])
def test_values_of_any_type_are_survived(nonsense, tmp_path):
    written = written_runs.WrittenNode(tmp_path)
    names = (
        "attempt",
        "restart",
        "generation",
        "node",
        "nodes",
        "world_size",
        "ranks",
        "pids",
        "waited_s",
        "started_s",
    )
    written.event("attempt.started", **dict.fromkeys(names, nonsense))
    names = ("attempt", "outcome", "reason", "ran_s", "rank", "host", "kind", "message", "cause", "victims", "outliers")
    for name in ("attempt.ended", "failure", "verdict", "stacks", "run.ended"):
        written.event(name, **dict.fromkeys(names, nonsense))
    node = told(written)
    run = run_of([node])
    assert sum(node.time_s().values()) == pytest.approx(node.length_s)
    assert run.nodes == [node]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["attempt", "ran_s", "cause"]), inner),
    max_leaves=5,
)
EVENT = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["run.started", "attempt.started", "attempt.ended", "failure", "verdict", "run.ended"]),
        "monotonic": st.none() | st.floats(0, 1e6),
        "details": st.dictionaries(
            st.sampled_from(
                ["attempt", "waited_s", "started_s", "ran_s", "outcome", "decision", "generation", "cause"]
            ),
            JSON | st.integers(0, 3) | st.sampled_from(["succeeded", "failed", "stopped", "restart", "stop"]),
        ),
    }
)


@given(st.lists(EVENT, max_size=12))
def test_whatever_the_events_the_activities_fill_the_time_without_overlap(events):
    lines = [
        json.dumps(
            {
                "name": f"holdfast.{event['name']}",
                "timestamp": 1.0,
                "metadata": {"monotonic": event["monotonic"], "details": event["details"]},
            }
        )
        for event in events
    ]
    node = node_of(Log([entry for line in lines if (entry := parse_line(line.encode()))]), "/runs/x")
    run_of([node])
    if node.spans:
        assert sum(node.time_s().values()) == pytest.approx(node.length_s)
    assert all(span.begin_s <= span.end_s for span in node.spans)
    for span, following in zip(node.spans, node.spans[1:], strict=False):
        assert span.end_s == following.begin_s
