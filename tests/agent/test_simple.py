"""An agent built on `SimpleElasticAgent`, and the barrier at the end."""

from __future__ import annotations

import threading

import pytest

from holdfast.agent import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState
from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousGracefulExitError
from holdfast.rendezvous.store import LocalStore


class Scripted(SimpleElasticAgent):
    """Workers that are what a script says they are, looked at every `monitor_interval`."""

    def __init__(self, spec, states):
        super().__init__(spec)
        self.states = list(states)
        self.calls = []

    def _start_workers(self, worker_group):
        self.calls.append("start")
        return {worker.local_rank: f"id{worker.local_rank}" for worker in worker_group.workers}

    def _stop_workers(self, worker_group):
        self.calls.append("stop")

    def _monitor_workers(self, worker_group):
        return RunResult(self.states.pop(0))

    def _shutdown(self, death_sig=None, timeout=30):
        self.calls.append("shutdown")


@pytest.fixture
def scripted(rdzv):
    def make(*states, max_restarts=0):
        spec = WorkerSpec("r", 2, rdzv, entrypoint="true", max_restarts=max_restarts, monitor_interval=0.001)
        return Scripted(spec, [WorkerState[state] for state in states])

    return make


def test_a_subclass_with_the_four_methods_is_an_agent(scripted):
    agent = scripted("HEALTHY", "HEALTHY", "SUCCEEDED")
    assert agent.run().state is WorkerState.SUCCEEDED
    assert agent.calls == ["start", "shutdown"]
    assert [worker.id for worker in agent.get_worker_group().workers] == ["id0", "id1"]


def test_a_restart_policy_that_nobody_knows_is_refused(rdzv):
    with pytest.raises(InputError, match="restart_policy 'never': write one of auto, always"):
        Scripted(WorkerSpec("r", 2, rdzv, entrypoint="true", restart_policy="never"), [])


def test_restarts(scripted):
    agent = scripted("HEALTHY", "FAILED", "UNHEALTHY", "SUCCEEDED", max_restarts=2)
    assert agent.run().state is WorkerState.SUCCEEDED
    assert agent.calls == ["start", "stop", "start", "stop", "start", "shutdown"]


def test_giving_up(scripted):
    agent = scripted("UNHEALTHY", "FAILED", max_restarts=1)
    assert agent.run().is_failed()
    assert agent.calls == ["start", "stop", "start", "stop", "shutdown"]
    assert agent.get_worker_group().state is WorkerState.FAILED


def test_a_state_that_cannot_be(scripted):
    agent = scripted("UNKNOWN")
    with pytest.raises(AssertionError, match="UNKNOWN"):
        agent.run()
    assert agent.calls[-1] == "shutdown"


def test_a_node_that_is_not_needed_has_succeeded(scripted, rdzv):
    def not_needed():
        raise RendezvousGracefulExitError("enough others")

    rdzv.next_rendezvous = not_needed
    agent = scripted()
    assert agent.run() == RunResult(WorkerState.SUCCEEDED)
    assert agent.calls == ["shutdown"]


def in_a_world_of(agent, store, rank, nodes):
    group = agent.get_worker_group()
    group.store, group.group_rank, group.group_world_size = store, rank, nodes
    return agent


def test_the_exit_barrier_waits_for_every_node(scripted):
    store, left = LocalStore(), []

    def leave(rank):
        in_a_world_of(scripted(), store, rank, 3)._exit_barrier()
        left.append(rank)

    threads = [threading.Thread(target=leave, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    store.wait(["torchelastic/agent/terminal_state.0", "torchelastic/agent/terminal_state.1"])
    assert left == []
    leave(2)
    for thread in threads:
        thread.join()
    assert sorted(left) == [0, 1, 2]


def test_the_exit_barrier_ends_in_time_and_names_who_is_missing(scripted, caplog):
    agent = in_a_world_of(scripted(), LocalStore(), 1, 3)
    agent._exit_barrier_timeout = 0.01
    agent._exit_barrier()
    assert "without the nodes [0, 2]" in caplog.text
