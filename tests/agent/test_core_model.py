"""What the agent's decisions are made of: a state that never changes, and what follows from it."""

from __future__ import annotations

import pytest

from holdfast.agent import core_model as model
from holdfast.agent.core_model import AgentState, Outcome, Phase
from holdfast.agent.state import WorkerState
from holdfast.settings import RestartLimits

STATE = AgentState(RestartLimits(3))


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (Phase.MEETING, WorkerState.INIT),
        (Phase.RUNNING, WorkerState.HEALTHY),
        (Phase.FAILING, WorkerState.UNHEALTHY),
        (Phase.DRAINING, WorkerState.HEALTHY),
        (Phase.PAUSED, WorkerState.STOPPED),
        (Phase.WAITING, WorkerState.SUCCEEDED),
        (Phase.ENDED, WorkerState.STOPPED),
    ],
)
def test_a_phase_in_torchs_words(phase, state):
    assert STATE.replace(phase=phase).worker_state is state


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.SUCCEEDED, WorkerState.SUCCEEDED),
        (Outcome.FAILED, WorkerState.FAILED),
        (Outcome.INTERRUPTED, WorkerState.STOPPED),
        (Outcome.CLOSED, WorkerState.STOPPED),
    ],
)
def test_an_end_in_torchs_words(outcome, state):
    assert STATE.replace(phase=Phase.ENDED, outcome=outcome).worker_state is state


def test_no_phase_and_no_outcome_is_without_a_word():
    for phase in Phase:
        for outcome in Outcome:
            assert STATE.replace(phase=phase, outcome=outcome).worker_state in WorkerState


def test_restarts_that_a_window_gave_back_still_count_as_restarts():
    state = STATE.replace(spent=1, forgiven=4)
    assert (state.max_restarts, state.restarts, state.remaining) == (3, 5, 2)


def test_a_state_and_an_event_do_not_change():
    with pytest.raises(AttributeError):
        STATE.spent = 1
    with pytest.raises(AttributeError):
        model.Asked(1.0).until = 2.0
    assert STATE.replace(spent=1) != STATE == AgentState(RestartLimits(3))


def test_a_new_agent_meets_the_others_and_owes_nothing():
    assert (STATE.phase, STATE.restarts, STATE.outcome, STATE.leaving) == (Phase.MEETING, 0, None, "")
