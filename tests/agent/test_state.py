"""The table of transitions."""

from __future__ import annotations

import itertools

import pytest

from holdfast.agent import WorkerState
from holdfast.agent.state import TRANSITIONS, Step, after


def test_every_step_of_the_table():
    for (state, step), result in TRANSITIONS.items():
        assert after(state, step) is result


def test_a_missing_pair_is_a_bug():
    for state, step in itertools.product(WorkerState, Step):
        if (state, step) not in TRANSITIONS:
            with pytest.raises(AssertionError, match=f"{state.value} cannot {step.value}"):
                after(state, step)


def test_every_state_can_be_reached_but_unknown_and_ends_are_ends():
    reached = {WorkerState.INIT}
    while True:
        more = {result for (state, _), result in TRANSITIONS.items() if state in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(WorkerState) - {WorkerState.UNKNOWN}
    assert all(state is not WorkerState.FAILED for state, _ in TRANSITIONS)
    assert [step for state, step in TRANSITIONS if state is WorkerState.SUCCEEDED] == [Step.STOP]


@pytest.mark.parametrize("state", WorkerState)
def test_running(state):
    assert WorkerState.is_running(state) == (state in {WorkerState.HEALTHY, WorkerState.UNHEALTHY})
