"""The agent's decisions: transcripts that people read, and what holds for every event in every state.

With UPDATE_TRANSCRIPTS set the transcripts are written anew; then read them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent_transcript import replay
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent import core
from holdfast.agent import core_model as model
from holdfast.agent.core import step
from holdfast.agent.core_model import AgentState, Outcome, Phase
from holdfast.agent.state import WorkerState
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.restarts import Fault, Past
from holdfast.settings import RestartLimits

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
NOW = 100.0

FAULTS = st.builds(
    Fault, st.sampled_from(FailureKind), st.sampled_from([0.5, 100.0]), st.sampled_from(["", "E at t.py:1"])
)
EVENTS = st.one_of(
    st.builds(model.Met, st.none() | st.integers(0, 9)),
    *map(st.just, (model.Started(), model.WorkerExited(), model.SetSucceeded(), model.SetFenced(), model.Stopped())),
    st.builds(model.SetFailed, FAULTS, st.just("rank 0 failed"), st.booleans()),
    st.builds(model.HangFound, FAULTS, st.just("rank 0 hangs")),
    st.builds(model.RoundOver, st.just("lost b"), st.booleans()),
    st.just(model.Asked(NOW + 30)),
    st.just(model.DeadlinePassed()),
    st.builds(model.BarrierLeft, st.sampled_from(["", "b failed"])),
    st.just(model.JobFailed("restarts: 3 of 3")),
    st.just(model.NotNeeded("the job has succeeded")),
    st.just(model.Signalled("SIGTERM", "the agent got SIGTERM")),
)
STATES = st.builds(
    AgentState,
    st.builds(RestartLimits, st.integers(0, 3), st.sampled_from([0.0, 60.0]), st.sampled_from(["auto", "always"])),
    st.booleans(),
    st.none() | st.builds(Past, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", "E at t.py:1"])),
    st.sampled_from([phase for phase in Phase if phase is not Phase.ENDED]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["", "the agent got SIGINT"]),
).map(lambda state: state if state.phase is Phase.DRAINING else state.replace(leaving=""))
NEXT_ATTEMPT = (model.StartSet, model.RestartSet, model.PauseUntil)


def after(state, event):
    """What `step` says, or None if that event cannot come in that phase."""
    try:
        return step(state, event, NOW)
    except AssertionError:
        return None


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_what_happens_is_what_the_transcript_says(path):
    written = path.read_text()
    happens = replay(written)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(happens)
    else:
        assert happens == written


def test_every_rule_is_in_a_transcript(monkeypatch):
    used = set()

    def noted(pair, rule):
        return lambda *arguments: (used.add(pair), rule(*arguments))[1]

    noting = {pair: (noted(pair, rule), leads_to) for pair, (rule, leads_to) in core.RULES.items()}
    monkeypatch.setattr(core, "RULES", noting)
    for path in TRANSCRIPTS:
        replay(path.read_text())
    assert used == set(core.RULES)


@given(STATES, EVENTS)
def test_a_rule_leads_where_the_table_says(state, event):
    happens = after(state, event)
    if happens is not None:
        _, leads_to = core.RULES[state.phase, type(event)]
        assert happens[0].phase in leads_to


@given(STATES, EVENTS)
def test_an_agent_ends_exactly_when_it_says_so(state, event):
    happens = after(state, event)
    if happens is not None:
        then, effects = happens
        finishes = [effect for effect in effects if isinstance(effect, model.Finish)]
        assert (then.phase is Phase.ENDED) == bool(finishes) == (then.outcome is not None)
        assert [(finish.outcome, finish.reason) for finish in finishes] == [(then.outcome, then.reason)] * len(finishes)
        assert not finishes or finishes == [effects[-1]]


@given(STATES, EVENTS)
def test_what_is_waited_for_comes_last_and_once(state, event):
    happens = after(state, event)
    if happens is not None:
        _, effects = happens
        last = (*NEXT_ATTEMPT, model.AskToStop, model.WaitForOthers, model.Finish)
        assert [isinstance(effect, last) for effect in effects[:-1]] == [False] * len(effects[:-1])


@given(STATES, EVENTS)
def test_a_restart_is_paid_for_once_or_by_the_job(state, event):
    happens = after(state, event)
    if happens is not None and not isinstance(event, model.Met):
        then, effects = happens
        is_own_failure = isinstance(event, (model.SetFailed, model.HangFound)) and not state.is_shared
        is_next = any(isinstance(effect, NEXT_ATTEMPT) for effect in effects)
        is_counted = is_own_failure and is_next and state.phase is not Phase.DRAINING
        assert then.restarts - state.restarts == int(is_counted)


@given(STATES, EVENTS)
def test_a_failure_is_judged_by_one(state, event):
    """Where nodes share a budget, the rendezvous judges. A node has a verdict of its own only on a stuck worker."""
    happens = after(state, event)
    if happens is not None:
        _, effects = happens
        is_stuck = isinstance(event, model.SetFailed) and event.is_stuck
        verdicts = [effect for effect in effects if isinstance(effect, model.RecordVerdict)]
        reports = [effect for effect in effects if isinstance(effect, model.Report)]
        assert not (verdicts and reports)
        assert not verdicts or not state.is_shared or is_stuck
        assert not reports or state.is_shared


@given(STATES, EVENTS)
def test_the_end_of_workers_is_recorded_once(state, event):
    happens = after(state, event)
    if happens is not None:
        then, effects = happens
        records = [effect for effect in effects if isinstance(effect, model.RecordWorkers)]
        assert len(records) <= 1
        assert not records or then.is_recorded
        assert [record.restarts for record in records] == [state.restarts] * len(records)


@given(STATES, EVENTS)
def test_the_second_signal_is_the_end(state, event):
    first = after(state, model.Signalled("SIGTERM", "the agent got SIGTERM"))
    assert first is not None
    if first[0].phase is not Phase.ENDED:
        (second, effects) = step(first[0], model.Signalled("SIGINT", "the agent got SIGINT"), NOW)
        assert second.outcome is Outcome.INTERRUPTED
        assert effects[-1] == model.Finish(Outcome.INTERRUPTED, "the agent got SIGINT")


@given(st.lists(EVENTS, max_size=30), st.booleans())
def test_no_order_of_events_leads_to_a_state_without_a_way_out(events, is_shared):
    state = AgentState(RestartLimits(2), is_shared=is_shared)
    for event in events:
        happens = after(state, event)
        if happens is not None:
            state, _ = happens
    if state.phase is not Phase.ENDED:
        assert after(state, model.Signalled("SIGTERM", "the agent got SIGTERM")) is not None
        assert any(phase is state.phase for phase, _ in core.RULES)


@given(EVENTS)
def test_an_agent_that_has_ended_hears_nothing(event):
    state = AgentState(RestartLimits(0), phase=Phase.ENDED, outcome=Outcome.FAILED)
    with pytest.raises(AssertionError, match="an agent that is ended cannot hear of"):
        step(state, event, NOW)


def test_the_state_of_workers_in_torchs_words():
    shown = {phase: AgentState(RestartLimits(0), phase=phase).worker_state for phase in Phase}
    assert {phase for phase, state in shown.items() if WorkerState.is_running(state)} == set(core.ALIVE)
    assert AgentState(RestartLimits(0), phase=Phase.ENDED, outcome=Outcome.FAILED).worker_state is WorkerState.FAILED


def test_an_end_that_is_known_stays():
    state = core.ended(AgentState(RestartLimits(0)), Outcome.FAILED, "first")
    assert core.ended(state, Outcome.CLOSED, "second") is state
