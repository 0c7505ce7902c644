"""A hang, and what may happen by itself while it is looked at."""

from __future__ import annotations

import json
import os
from pathlib import Path

from holdfast.agent import WorkerState
from holdfast.agent.requests import REQUESTS_MAX
from holdfast.errors.kind import FailureKind

HANG_TIMEOUT_S = 1

STANDS_STILL = """
import os, signal, sys, time
def end(*_):
    {end}
if os.environ["RANK"] in {ranks}:
    signal.signal(signal.SIGRTMIN + 12, end)  # that is how it learns that somebody looks
while True:
    time.sleep(600)
"""


def noted(agent, name):
    lines = Path(agent._event_log_path()).read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event["metadata"]["details"] for event in events if event["name"] == f"holdfast.{name}"]


def looked_at(python_agent, end, ranks, **spec):
    script = STANDS_STILL.format(end=end, ranks=ranks)
    agent = python_agent(script, agent={"hang_timeout": HANG_TIMEOUT_S}, **spec)
    return agent, agent.run()


def test_workers_that_stand_still_have_failed(python_agent):
    agent, result = looked_at(python_agent, "pass", ())
    (failure,) = result.failures.values()
    assert (result.state, failure.kind) == (WorkerState.FAILED, FailureKind.HANG)
    assert [verdict["cause"]["kind"] for verdict in noted(agent, "verdict")] == ["hang"]


def test_a_worker_that_fails_while_its_hang_is_looked_at_is_the_cause(python_agent):
    agent, result = looked_at(python_agent, 'raise ValueError("by itself")', ("1",))
    assert {rank: failure.kind for rank, failure in result.failures.items()} == {1: FailureKind.EXCEPTION}
    assert "by itself" in result.failures[1].message
    assert [failure["kind"] for failure in noted(agent, "failure")] == ["exception"]


def test_workers_that_succeed_while_a_hang_is_looked_at_have_succeeded(python_agent):
    agent, result = looked_at(python_agent, "os._exit(0)", ("0", "1"))
    assert (result.state, result.failures) == (WorkerState.SUCCEEDED, {})
    assert noted(agent, "failure") == []


def test_a_worker_that_succeeds_while_it_is_looked_at_leaves_the_hang_to_the_other(python_agent):
    _, result = looked_at(python_agent, "os._exit(0)", ("0",))
    assert {rank: failure.kind for rank, failure in result.failures.items()} == {1: FailureKind.HANG}


HANGS = """
import os, time
while os.environ["RANK"] == {rank!r}:
    time.sleep(600)
"""


def test_a_worker_that_hangs_has_its_own_local_rank_when_others_have_ended(python_agent):
    agent = python_agent(HANGS.format(rank="2"), agent={"hang_timeout": HANG_TIMEOUT_S}, local_world_size=4)
    result = agent.run()
    assert {rank: (failure.kind, failure.local_rank) for rank, failure in result.failures.items()} == {
        2: (FailureKind.HANG, 2)
    }
    assert [failure["local_rank"] for failure in noted(agent, "failure")] == [2]
    assert [verdict["cause"]["local_rank"] for verdict in noted(agent, "verdict")] == [2]


def test_requests_that_came_together_are_answered_together_and_all_of_them(python_agent, tmp_path):
    """So somebody who asks again and again is not kept waiting by the requests before the last one."""
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    agent = python_agent(f"open({gate!r}).read()", local_world_size=1)
    names = [f"ask-{number}" for number in range(REQUESTS_MAX + 3)]
    begin, look_here, keep = agent._inspection.begin, agent._inspection._ranks_here, agent._inspection._keep
    looks, kept = [], []

    def ask_often(context, pages, run_dir):
        begin(context, pages, run_dir)
        with open(run_dir.requests, "w") as pipe:
            pipe.write("".join(f"stacks {name}\n" for name in names))

    def ranks_here():
        looks.append(1)
        return look_here()

    def keep_and_tell(dump, name, reason):
        path = keep(dump, name, reason)
        kept.append((name, os.path.exists(path)))
        if len(kept) == len(names):
            Path(gate).write_text("all are answered")
        return path

    agent._inspection.begin = ask_often
    agent._inspection._ranks_here = ranks_here
    agent._inspection._keep = keep_and_tell
    assert agent.run().state is WorkerState.SUCCEEDED
    assert kept == [(name, True) for name in names]
    assert len(looks) == 2


def test_a_hang_is_found_where_there_is_no_run_directory(python_agent, tmp_path):
    script = STANDS_STILL.format(end="pass", ranks=())
    agent = python_agent(script, agent={"hang_timeout": HANG_TIMEOUT_S})
    agent._logs_specs = type(agent._logs_specs)(log_dir="/dev/null")
    (failure,) = agent.run().failures.values()
    assert failure.kind is FailureKind.HANG
    assert "time.sleep" not in failure.message
    assert "in <module>" in failure.message
    assert list(tmp_path.glob("logs/**/requests")) == []
