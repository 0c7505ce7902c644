"""A storm's plan: the same for the same seed, and only what can happen."""

from __future__ import annotations

import pytest
from chaos.kinds import (
    ADD_NODE,
    FILL_DISK,
    FREEZE_WORKER,
    HITS_ETCD,
    HITS_THE_STORE,
    KILL_WORKER,
    KINDS,
    TAKES_A_NODE,
    After,
)
from chaos.storm import MIN_NODES, NODES, SERVER, plan

SEEDS = range(60)
BACKENDS = pytest.mark.parametrize("backend", ["etcd", "c10d"])


def storms(backend, faults=40):
    return [plan(seed, faults, backend, KINDS) for seed in SEEDS]


@BACKENDS
def test_the_same_seed_is_the_same_storm(backend):
    assert storms(backend) == storms(backend)
    assert len(set(storms(backend))) == len(SEEDS)


@BACKENDS
def test_there_are_as_many_faults_as_were_asked_for(backend):
    for storm in storms(backend, 33):
        assert sum(len(step.faults) for step in storm.steps) == 33


@BACKENDS
def test_enough_nodes_stay_and_only_those_that_are_there_are_hit(backend):
    for storm in storms(backend):
        running = set(range(NODES))
        for step in storm.steps:
            nodes = [fault.node for fault in step.faults if fault.kind not in HITS_THE_STORE]
            assert len(set(nodes)) == len(nodes)
            for fault in step.faults:
                assert fault.kind in HITS_THE_STORE or (fault.node in running) == (fault.kind != ADD_NODE)
                assert fault.local_rank < storm.workers[fault.node]
            away = {fault.node for fault in step.faults if fault.kind in TAKES_A_NODE}
            assert len(running - away) >= MIN_NODES
            running -= {fault.node for fault in step.faults if KINDS[fault.kind].after is After.IDLE}
            running |= {fault.node for fault in step.faults if fault.kind == ADD_NODE}


@BACKENDS
def test_what_stays_is_undone_once_and_not_done_again_before(backend):
    for storm in storms(backend):
        staying = set()
        for step in storm.steps:
            assert set(step.undo) <= staying
            staying -= set(step.undo)
            for fault in step.faults:
                if KINDS[fault.kind].after is After.STAYS:
                    assert (fault.kind, fault.node) not in {(other.kind, other.node) for other in staying}
                    staying.add(fault)


def test_the_node_that_serves_the_store_is_spared():
    for storm in storms("c10d"):
        for fault in (fault for step in storm.steps for fault in step.faults):
            assert KINDS[fault.kind].backend != "etcd"
            assert fault.node != SERVER or fault.kind not in TAKES_A_NODE


def test_no_agent_is_started_where_it_could_make_no_file():
    for storm in storms("etcd"):
        full = set()
        for step in storm.steps:
            full -= {fault.node for fault in step.undo if fault.kind == FILL_DISK}
            for fault in step.faults:
                assert fault.kind != ADD_NODE or fault.node not in full
                assert not (KINDS[fault.kind].ends and full)
                if fault.kind == FILL_DISK and fault.amount:
                    full.add(fault.node)


@BACKENDS
def test_every_kind_of_fault_happens_and_some_at_the_same_time(backend):
    steps = [step for storm in storms(backend) for step in storm.steps]
    there = {name for name, kind in KINDS.items() if kind.backend in ("", backend)}
    assert {fault.kind for step in steps for fault in step.faults} == there
    assert any(len(step.faults) == 2 for step in steps)


def test_a_worker_is_stopped_for_good_only_before_something_ends_its_generation():
    for step in (step for storm in storms("etcd") for step in storm.steps):
        kinds = [fault.kind for fault in step.faults]
        assert FREEZE_WORKER not in kinds or (kinds[0], len(kinds)) == (FREEZE_WORKER, 2)


def test_one_member_of_etcd_is_away_at_a_time():
    for storm in storms("etcd"):
        staying = set()
        for step in storm.steps:
            staying -= set(step.undo)
            hit = {fault for fault in step.faults if fault.kind in HITS_ETCD}
            assert not (hit and staying)
            staying |= {fault for fault in hit if KINDS[fault.kind].after is After.STAYS}


def test_only_the_kinds_that_are_possible_happen():
    storm = plan(1, 30, "etcd", [KILL_WORKER, ADD_NODE])
    assert {fault.kind for step in storm.steps for fault in step.faults} == {KILL_WORKER}


def test_a_storm_of_which_nothing_can_happen_is_refused():
    with pytest.raises(ValueError, match=f"none of {ADD_NODE} can happen to {NODES} nodes"):
        plan(1, 3, "etcd", [ADD_NODE])
