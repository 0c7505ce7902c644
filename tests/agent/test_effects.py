"""Every effect has a handler, and those with an answer give it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.agent import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState, core_model
from holdfast.agent.core_model import (
    AnnounceLeave,
    Asked,
    AskToStop,
    BarrierLeft,
    DeadlinePassed,
    Finish,
    LookBeforeStop,
    Outcome,
    PauseUntil,
    Report,
    Say,
    StopSet,
    WaitForOthers,
)
from holdfast.agent.effects import HANDLERS, carry_out
from holdfast.errors import ProcessFailure
from holdfast.rendezvous.handler import RoundOver


class Noting(SimpleElasticAgent):
    """Writes down which of its hooks are called."""

    until = None

    def __init__(self, spec):
        super().__init__(spec)
        self.calls = []

    def _start_workers(self, worker_group):
        return {}

    def _stop_workers(self, worker_group):
        self.calls.append("stop")

    def _monitor_workers(self, worker_group):
        return RunResult(WorkerState.HEALTHY)

    def _shutdown(self, death_sig=None, timeout=30):
        pass

    def _ask_to_stop(self, worker_group, reason):
        self.calls.append(reason)
        return self.until

    def _look_before_stop(self, reason):
        self.calls.append(f"look: {reason}")


@pytest.fixture
def agent(rdzv):
    return Noting(WorkerSpec("r", 2, rdzv, entrypoint="true"))


def test_every_effect_has_a_handler():
    """The effects stand in the second part of the model, after the events."""
    source = Path(core_model.__file__).read_text().partition("# Effects\n")[2]
    names = [line.removeprefix("class ").partition("(")[0] for line in source.splitlines() if line.startswith("class ")]
    assert len(names) == 15
    assert {effect.__name__ for effect in HANDLERS} == set(names)


def test_an_unknown_effect_is_a_bug(agent):
    with pytest.raises(KeyError):
        carry_out(agent, [core_model.Started()])


def test_effects_are_carried_out_in_their_order(agent):
    assert carry_out(agent, [LookBeforeStop("a failure"), StopSet()]) is None
    assert agent.calls == ["look: a failure", "stop"]


@pytest.mark.parametrize(("until", "answer"), [(None, DeadlinePassed()), (7.5, Asked(7.5))])
def test_who_was_asked_to_stop_has_a_deadline_or_does_not_listen(agent, until, answer):
    agent.until = until
    assert carry_out(agent, [AskToStop("nodes come")]) == answer
    assert agent.calls == ["nodes come"]


def test_only_the_last_answer_counts(agent):
    assert carry_out(agent, [AskToStop("x"), StopSet()]) is None


def test_a_pause_is_answered_when_it_is_over(agent):
    at = time.monotonic() + 0.01
    assert carry_out(agent, [PauseUntil(at)]) == DeadlinePassed()
    assert time.monotonic() >= at


@pytest.mark.parametrize(
    ("is_over", "over", "reason"),
    [
        (True, None, ""),
        (None, None, ""),
        (False, None, "the other nodes stopped"),
        (False, RoundOver("lost node9"), "lost node9"),
    ],
)
def test_leaving_the_barrier_says_why_the_workers_are_needed_again(agent, rdzv, is_over, over, reason):
    agent._exit_barrier = lambda: is_over
    rdzv.round_over = lambda: over
    assert carry_out(agent, [WaitForOthers()]) == BarrierLeft(reason)


def test_the_other_nodes_are_told(agent, rdzv):
    told = []
    rdzv.announce_leave = told.append
    rdzv.report_failure = lambda rank, failure, others, node: told.append((rank, failure.exitcode, others, node))
    agent._result = RunResult(
        WorkerState.FAILED, failures={3: ProcessFailure(0, 7, 9, ""), 4: ProcessFailure(1, 8, 9, "")}
    )
    assert carry_out(agent, [AnnounceLeave("SIGTERM"), Report()]) is None
    assert told == ["SIGTERM", (3, 9, 1, None)]


def test_lines_have_their_level_and_the_name_that_users_know(agent, caplog):
    caplog.set_level("INFO", logger="holdfast")
    carry_out(agent, [Say("bad"), Say("good", is_info=True)])
    said = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [("holdfast.agent.simple", "WARNING", "bad"), ("holdfast.agent.simple", "INFO", "good")]


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [(Outcome.FAILED, WorkerState.FAILED, "why"), (Outcome.SUCCEEDED, WorkerState.INIT, "")],
)
def test_a_failed_job_has_a_failed_result(agent, outcome, state, reason):
    carry_out(agent, [Finish(outcome, "why")])
    assert (agent._result.state, agent._result.reason) == (state, reason)
