"""What a node runs, as torch's subclasses know it, and the job's settings in it."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.agent import Worker, WorkerGroup, WorkerSpec, WorkerState
from holdfast.agent.group import SHARED
from holdfast.errors import InputError
from holdfast.settings import JobSettings

SETTINGS = JobSettings(
    2, 3, 4, role="trainer", max_restarts=5, restart_window=6.0, restart_policy="always", hang_timeout=7.0
)


def test_a_specification_has_all_of_the_settings():
    spec = WorkerSpec.of(SETTINGS, "handler", "true", ["x"])
    assert spec.get_settings() == SETTINGS
    assert (spec.role, spec.local_world_size, spec.max_restarts, spec.args) == ("trainer", 4, 5, ("x",))
    assert all(getattr(spec, name) == getattr(SETTINGS, name) for name in SHARED)


def test_what_is_said_in_the_specification_counts():
    spec = WorkerSpec.of(SETTINGS, "handler", "true")
    spec.max_restarts = 0
    assert spec.get_settings() == SETTINGS.replace(max_restarts=0)
    other = dataclasses.replace(spec, role="other", local_world_size=1)
    assert other.get_settings() == SETTINGS.replace(max_restarts=0, role="other", nproc_per_node=1)


def test_one_without_settings_has_the_defaults():
    spec = WorkerSpec("r", 2, "handler", entrypoint="true", restart_window=9.0)
    assert spec.get_settings() == JobSettings(0, 0, 2, role="r", restart_window=9.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"local_world_size": 0},
        {"monitor_interval": 0},
        {"monitor_interval": float("nan")},
        {"max_restarts": -1},
        {"entrypoint": None},
    ],
)
def test_what_cannot_be_run_is_refused(wrong):
    with pytest.raises(InputError, match="role 'r'"):
        WorkerSpec(**{"role": "r", "local_world_size": 1, "rdzv_handler": "handler", "entrypoint": "true", **wrong})


def test_a_group_before_its_first_round():
    group = WorkerGroup(WorkerSpec("r", 2, "handler", entrypoint="true"))
    assert [worker.local_rank for worker in group.workers] == [0, 1]
    assert (group.state, group.group_rank, group.generation) == (WorkerState.INIT, None, None)
    assert "local_rank=1, role_rank=-1" in repr(Worker(1))
