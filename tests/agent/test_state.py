"""The states that torch has words for."""

from __future__ import annotations

import pytest

from holdfast.agent import WorkerState


@pytest.mark.parametrize("state", WorkerState)
def test_running(state):
    assert WorkerState.is_running(state) == (state in {WorkerState.HEALTHY, WorkerState.UNHEALTHY})


def test_a_state_is_shown_with_its_class():
    assert str(WorkerState.HEALTHY) == "WorkerState.HEALTHY"
