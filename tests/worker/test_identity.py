"""A worker's place in its job, in real jobs and without one."""

from __future__ import annotations

import sys

import pytest

from holdfast import worker
from holdfast.agent import LocalElasticAgent, WorkerSpec
from holdfast.processes import DefaultLogsSpecs, Std
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.static import StaticRendezvous

SHOW = """
import os
from holdfast import worker
print(worker.rank(), worker.world_size(), worker.local_rank(), worker.local_world_size(), worker.restart_count(),
      worker.generation(), worker.run_id())
os._exit(3 if worker.restart_count() == 0 and worker.rank() == 1 else 0)
"""


def test_without_an_agent_it_is_the_only_worker():
    assert (worker.rank(), worker.world_size(), worker.local_rank(), worker.local_world_size()) == (0, 1, 0, 1)
    assert (worker.restart_count(), worker.generation(), worker.run_id()) == (0, 1, "")


@pytest.mark.parametrize(("given", "number"), [("", 3), ("9", 9)])
def test_a_generation_that_nobody_counts_follows_from_the_restarts(monkeypatch, given, number):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    monkeypatch.setenv("HOLDFAST_GENERATION", given)
    assert worker.generation() == number


def test_a_value_that_is_no_number_is_an_error_of_whoever_set_it(monkeypatch):
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ValueError, match="first"):
        worker.rank()


def test_workers_of_a_job_know_their_places_and_how_often_it_was_restarted(tmp_path):
    handler = StaticRendezvous.alone(RendezvousParameters("static", "", "the-run", 1, 1))
    spec = WorkerSpec(
        role="trainer",
        local_world_size=2,
        rdzv_handler=handler,
        entrypoint=sys.executable,
        args=("-uc", SHOW),
        max_restarts=1,
    )
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path), redirects=Std.OUT), shutdown_timeout=60)
    try:
        assert not agent.run().is_failed()
    finally:
        handler.shutdown()
    said = {
        path.relative_to(path.parent.parent.parent).parent.as_posix(): path.read_text()
        for path in tmp_path.rglob("stdout.log")
    }
    assert said["attempt_0/1"] == "1 2 1 2 0 1 the-run\n"
    assert [said[f"attempt_1/{rank}"] for rank in (0, 1)] == ["0 2 0 2 1 2 the-run\n", "1 2 1 2 1 2 the-run\n"]
