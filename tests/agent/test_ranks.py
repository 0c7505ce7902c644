"""Who gets which rank."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.ranks import assign_ranks, place_of
from holdfast.agent.simple import SimpleElasticAgent
from holdfast.rendezvous.store import LocalStore

NODES = st.lists(st.tuples(st.sampled_from(["trainer", "reader", "ps"]), st.integers(1, 9)), min_size=1, max_size=12)


@given(NODES)
def test_a_global_rank_says_which_node_it_is_on_and_its_local_rank(nodes):
    for node in range(len(nodes)):
        for worker in assign_ranks(nodes, node):
            assert place_of(nodes, worker.global_rank) == (node, worker.local_rank)


@given(NODES)
def test_ranks_have_no_gaps_and_no_doubles(nodes):
    workers = [worker for rank in range(len(nodes)) for worker in assign_ranks(nodes, rank)]
    world = sum(size for _, size in nodes)
    assert [worker.global_rank for worker in workers] == list(range(world))
    assert {worker.world_size for worker in workers} == {world}


@given(NODES)
def test_role_ranks_count_within_a_role(nodes):
    by_role = {}
    for rank, (role, size) in enumerate(nodes):
        workers = assign_ranks(nodes, rank)
        assert [worker.local_rank for worker in workers] == list(range(size))
        by_role.setdefault(role, []).extend(workers)
    for role, workers in by_role.items():
        size = sum(size for other, size in nodes if other == role)
        assert [worker.role_rank for worker in workers] == list(range(size))
        assert {worker.role_world_size for worker in workers} == {size}


def test_seven_agents_of_three_roles_agree_through_a_store(agent_of):
    """Nodes of different sizes tell each other; 25 workers in all."""
    nodes = [("a", 4), ("b", 1), ("a", 2), ("c", 8), ("b", 3), ("c", 1), ("a", 6)]
    store = LocalStore()
    found = {}

    def assign(rank):
        role, size = nodes[rank]
        agent = agent_of(role=role, local_world_size=size)
        spec = agent.get_worker_group().spec
        found[rank] = SimpleElasticAgent._assign_worker_ranks(agent, store, rank, len(nodes), spec)

    threads = [threading.Thread(target=assign, args=(rank,)) for rank in reversed(range(len(nodes)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(len(nodes)):
        assert list(map(repr, found[rank])) == list(map(repr, assign_ranks(nodes, rank)))


def test_nodes_that_are_said_to_be_the_same_need_no_store(agent_of, monkeypatch):
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "1")
    agent = agent_of(local_world_size=2)
    spec = agent.get_worker_group().spec
    workers = agent._assign_worker_ranks(LocalStore(), 3, 5, spec)
    assert [worker.global_rank for worker in workers] == [6, 7]
    assert {worker.world_size for worker in workers} == {10}
