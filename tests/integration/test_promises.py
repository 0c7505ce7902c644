"""What a job promises while nodes come and go, shown with the real command on four nodes.

Every test ends with the check that never did two generations run at once, and that each was of one mind.
"""

from __future__ import annotations

import shutil
import signal

import node_worker
import pytest
from job_nodes import restart_counts, succeed

pytestmark = pytest.mark.root

on_embedded = pytest.mark.parametrize("place_name", ["embedded"], indirect=True)
on_etcd = pytest.mark.parametrize("place_name", [pytest.param("etcd", marks=pytest.mark.etcd)], indirect=True)

FLAPS = 6
"""How often a machine comes and goes."""

DISTURBANCES_MAX = 4
"""How often that may disturb the others: it is let in twice, and lost twice. After that it is held back."""


def generations(lives):
    return {life.generation for life in lives}


# Who is let in


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked to leave"])
def test_a_machine_that_comes_and_goes_does_not_starve_the_others(job, signum):
    four = job("3:4")
    *steady, flapping = four.nodes
    agents = four.start(*steady)
    world = four.wait_for_world(6)
    held_back = 0
    for _ in range(FLAPS):
        (agent,) = four.start(flapping)
        four.wait_for_words(agent, "is let in again after staying", or_until=lambda: four.alive(flapping))
        held_back += not four.alive(flapping)
        agent.kill(signum)
        four.wait_for_exit(agent)
        world = four.wait_for_world(6)
    assert held_back >= FLAPS - DISTURBANCES_MAX // 2, four.describe()
    assert len(generations(four.lives)) <= 1 + DISTURBANCES_MAX, four.describe()
    assert restart_counts(world) == {0}
    succeed(four, agents)


def test_a_machine_that_was_held_back_is_let_in_when_it_stays(job):
    four = job("3:4")
    *steady, flapping = four.nodes
    agents = four.start(*steady)
    four.wait_for_world(6)
    for _ in range(2):
        (agent,) = four.start(flapping)
        four.wait_for_world(8)
        agent.kill()
        four.wait_for_exit(agent)
        four.wait_for_world(6)
    agents += four.start(flapping)
    four.wait_for_words(agents[-1], "this one was lost 2 times; it is let in again after staying for")
    assert restart_counts(four.wait_for_world(8)) == {0}
    succeed(four, agents)


# A node that fails where the others are fine


def test_a_node_that_alone_fails_is_left_out_and_the_job_goes_on(job):
    three = job("2:3")
    *well, bad = three.nodes
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    three.tell(three.alive(bad), "raise this machine has a broken disk")
    world = three.wait_for_world(6, after=world)
    three.tell(three.alive(bad), "raise this machine has a broken disk")
    world = three.wait_for_world(4, after=world)
    assert {life.node for life in world} == {node.hostname for node in well}
    assert restart_counts(world) == {2}
    three.wait_for_words(three.agent(bad), "this one was left out because only its workers failed")
    succeed(three, agents)


# What the join timeout is about


def test_the_join_timeout_does_not_run_while_a_peer_stops_its_workers(job):
    two = job("2", "--rdzv-conf=last_call_timeout=1,join_timeout=2", "--shutdown-timeout=6")
    first, second = two.nodes
    agents = two.start(first) + two.start(second, words=["deaf"])
    world = two.wait_for_world(4)
    two.tell([two.worker(first, 0)], "exit 3")
    again = two.wait_for_world(4, after=world)
    assert restart_counts(again) == {1}
    succeed(two, agents)


# The same run id once more


@on_etcd
def test_a_run_id_that_everybody_left_without_an_end_is_begun_anew(job):
    two = job("2", run_id="again")
    agents = two.start(*two.nodes)
    for restart in range(2):
        world = two.wait_for_world(4)
        assert restart_counts(world) == {restart}
        two.tell([two.worker(two.nodes[0], 0)], "exit 3")
        two.wait_for_end(world)
    world = two.wait_for_world(4)
    for agent in agents:
        agent.kill(signal.SIGTERM)
    assert two.wait_for_exit(*agents) == [128 + signal.SIGTERM] * 2
    again = two.start(*two.nodes, flags=["--max-restarts=10"])
    world = two.wait_for_world(4)
    assert restart_counts(world) == {0}
    assert {life.environment["TORCHELASTIC_MAX_RESTARTS"] for life in world} == {"10"}
    succeed(two, again)


@on_embedded
def test_an_agent_that_comes_too_late_does_not_run_the_job_again(job, tmp_path):
    """The store has ended with the job, and nobody else is there to tell."""
    one = job("1:2", XDG_STATE_HOME=str(tmp_path / "state"))
    (first,) = one.nodes[:1]
    environment = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    agents = one.start(first, environment=environment)
    one.wait_for_world(2)
    succeed(one, agents)
    lives = len(one.lives)
    (late,) = one.start(first, environment={**environment, "SLURM_PROCID": "1"})
    assert one.wait_for_exit(late) == [1]
    assert "run 'job' ended before this agent could join it (succeeded" in late.stderr()
    assert len(one.lives) == lives
    for other in ({}, {"SLURM_STEP_ID": "1"}):  # a script that repeats the command, and the next step
        (again,) = one.start(first, environment={**environment, **other})
        one.wait_for_world(2)
        one.wait_for_words(again, "starting it again")
        one.tell_all("exit 0")
        assert one.wait_for_exit(again) == [0]


# What a loss is the cause of


def test_a_worker_that_aborts_because_its_peer_is_gone_costs_no_restart(job):
    three = job("2:3")
    *others, gone = three.nodes
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    three.network.cut(gone)
    three.tell([three.worker(others[1], 0)], f"kill {int(signal.SIGABRT)}")
    world = three.wait_for_world(4, after=world)
    assert restart_counts(world) == {0}
    three.wait_for_words(agents[0], f"lost {gone.hostname}")
    three.network.mend(gone)
    world = three.wait_for_world(6, after=world)
    assert restart_counts(world) == {0}
    succeed(three, agents)


# Nodes that were told different things


def test_nodes_of_another_program_are_turned_away(job, tmp_path):
    two = job("1:2")
    first, second = two.nodes
    agents = two.start(first)
    world = two.wait_for_world(2)
    other = tmp_path / "another_program.py"
    shutil.copy(node_worker.__file__, other)
    (stranger,) = two.start(second, program=str(other))
    assert two.wait_for_exit(stranger) == [2]
    assert "another_program.py" in stranger.stderr()
    assert "give one of them another --rdzv-id" in stranger.stderr()
    assert "Traceback" not in stranger.stderr()
    assert set(two.alive()) == set(world)
    succeed(two, agents)


@pytest.mark.parametrize(
    ("flag", "words"),
    [("--max-restarts=1", "--max-restarts is 1 here and 3 on"), ("--nnodes=1:2", "--nnodes is 1:2 here and 2:2 on")],
    ids=["another budget", "other numbers of nodes"],
)
def test_nodes_with_other_limits_are_told(job, flag, words):
    two = job("2")
    first, second = two.nodes
    agents = two.start(first)
    two.wait_for_words(agents[0], "1 node is here and 2 are needed")
    agents += two.start(second, flags=[flag])
    two.wait_for_world(4)
    two.wait_for_words(agents[1], words)
    succeed(two, agents)


def test_nodes_with_another_budget_count_as_the_job_does(job):
    two = job("2")
    first, second = two.nodes
    agents = two.start(first)
    two.wait_for_words(agents[0], "1 node is here and 2 are needed")
    agents += two.start(second, flags=["--max-restarts=1"])
    world = two.wait_for_world(4)
    for restart in (1, 2):
        two.tell([two.worker(first, 0)], "exit 3")
        world = two.wait_for_world(4, after=world)
        assert restart_counts(world) == {restart}
    for agent in agents:
        two.wait_for_words(agent, "restart 2 of ")
        assert "restart 2 of 3" in agent.stderr()
    succeed(two, agents)
