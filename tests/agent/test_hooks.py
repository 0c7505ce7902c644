"""What a subclass must have, and what it gets for nothing."""

from __future__ import annotations

import pytest

from holdfast.agent import ElasticAgent, SimpleElasticAgent, WorkerSpec
from holdfast.agent.hooks import WorkerHooks


class Bare(SimpleElasticAgent):
    """The four methods and no more."""

    def _start_workers(self, worker_group):
        return {}

    def _stop_workers(self, worker_group):
        pass

    def _monitor_workers(self, worker_group):
        raise NotImplementedError

    def _shutdown(self, death_sig=None, timeout=30):
        pass


def test_a_subclass_must_have_the_four_methods_that_torch_names():
    names = {"_start_workers", "_stop_workers", "_monitor_workers", "_shutdown"}
    assert SimpleElasticAgent.__abstractmethods__ == names
    assert issubclass(SimpleElasticAgent, ElasticAgent)
    assert WorkerHooks.__abstractmethods__ - names == {"run", "get_worker_group"}


@pytest.fixture
def bare(rdzv):
    return Bare(WorkerSpec("r", 1, rdzv, entrypoint="true", monitor_interval=0.001))


def test_the_other_hooks_have_defaults(bare):
    group = bare.get_worker_group()
    assert bare._ask_to_stop(group, "reason") is None
    assert bare._failures_at_the_end(group) == {}
    assert bare._node_of_failure() is None
    assert bare._event_log_path() is None
    bare._look_before_stop("reason")
    bare._before_exit_barrier()
    bare._take_no_requests()
    bare._wait_for_change(group)


def test_the_store_is_served_where_it_is_hosted(bare):
    group = bare.get_worker_group()
    bare._serve_store(group)
    started = []
    store = type("Store", (), {"start": lambda _: started.append(1)})()
    group.hosting = type("Hosting", (), {"store": store})()
    bare._serve_store(group)
    assert started == [1]
