"""Jobs of four nodes with two workers each, and all that can befall them.

Every test ends with the check that never did two generations run at once, and that each was of one mind.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from job_nodes import Job, restart_counts, succeed
from meeting_places import PORT, TOKEN

pytestmark = pytest.mark.root

on_embedded = pytest.mark.parametrize("place_name", ["embedded"], indirect=True)
on_etcd = pytest.mark.parametrize("place_name", [pytest.param("etcd", marks=pytest.mark.etcd)], indirect=True)

QUIET_S = 5.0
"""How long nothing must happen after a fault that concerns nobody: longer than a lease, whose time to live is 3 s."""


ASKED_MAX_S = 120
"""More than `holdfast stacks` waits for an answer."""


def on(world, node):
    return [life for life in world if life.node == node.hostname]


# Coming


def test_nodes_that_start_together(job):
    four = job("4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    assert restart_counts(world) == {0}
    assert {life.environment["GROUP_WORLD_SIZE"] for life in world} == {"4"}
    assert {life.environment["LOCAL_WORLD_SIZE"] for life in world} == {"2"}
    assert {life.environment["TORCHELASTIC_RUN_ID"] for life in world} == {"job"}
    assert [life.group_rank for life in world] == [0, 0, 1, 1, 2, 2, 3, 3]
    addresses = {node.address for node in four.nodes} | {node.hostname for node in four.nodes}
    assert world[0].environment["MASTER_ADDR"] in addresses
    succeed(four, agents)
    assert len(four.lives) == 8


def test_the_server_may_come_last(job):
    four = job("4")
    agents = four.start(*reversed(four.nodes))
    four.wait_for_world(8)
    succeed(four, agents)


def test_a_node_that_comes_late_is_let_in(job):
    four = job("3:4")
    *early, late = four.nodes
    agents = four.start(*early)
    world = four.wait_for_world(6)
    agents += four.start(late)
    larger = four.wait_for_world(8, after=world)
    assert restart_counts(larger) == {0}
    assert len(four.lives) == 14
    # Those that were there keep their places.
    assert [life.node for life in larger][:6] == [life.node for life in world]
    succeed(four, agents)


def test_a_group_that_is_too_small_waits(job):
    four = job("3:4")
    agents = four.start(*four.nodes[:2])
    assert four.stays(lambda: not four.lives, 2)
    agents += four.start(four.nodes[2])
    four.wait_for_world(6)
    succeed(four, agents)


# Nodes that are lost


def test_a_killed_agent_is_done_without(job):
    four = job("3:4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    agents[3].kill()
    smaller = four.wait_for_world(6, after=world)
    assert not on(smaller, four.nodes[3])
    four.wait_until_empty(four.nodes[3])
    succeed(four, agents[:3])


def test_a_node_that_is_cut_off_is_done_without_and_comes_back(job):
    four = job("3:4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    lost = four.nodes[3]
    four.network.cut(lost)
    smaller = four.wait_for_world(6, after=world)
    # Its workers were dead before the survivors' new ones were there: `check` proves it for all of these.
    assert all(life.has_ended for life in on(world, lost))
    assert not on(smaller, lost)
    assert agents[3].returncode is None
    four.network.mend(lost)
    whole = four.wait_for_world(8, after=smaller)
    assert [life.node for life in whole][:6] == [life.node for life in smaller]
    succeed(four, agents)


def test_a_short_cut_goes_unnoticed(job):
    four = job("3:4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.network.cut(four.nodes[3])
    four.network.mend(four.nodes[3])
    assert four.stays(lambda: four.alive() and not any(life.has_ended for life in world), QUIET_S)
    succeed(four, agents)
    assert len(four.lives) == 8


def test_a_stopped_agent_is_done_without_and_comes_back(job):
    four = job("3:4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    agents[3].kill(signal.SIGSTOP)
    smaller = four.wait_for_world(6, after=world)
    assert all(life.has_ended for life in on(world, four.nodes[3]))
    agents[3].kill(signal.SIGCONT)
    four.wait_for_world(8, after=smaller)
    succeed(four, agents)


@on_embedded
def test_a_node_is_lost_while_somebody_asks_for_the_stacks_of_all(job, tmp_path):
    """The agent that waits for the answers hears of the loss there, and must not forget it."""
    four = job("3:4")
    agents = four.start(*four.nodes, flags=[f"--log-dir={tmp_path}"])
    world = four.wait_for_world(8)
    agents[3].kill(signal.SIGSTOP)
    mine = next(life for life in on(world, four.nodes[1]))
    directory = Path(mine.environment["TORCHELASTIC_ERROR_FILE"]).parents[2]
    asking = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "stacks", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        smaller = four.wait_for_world(6, after=world)
        asking.communicate(timeout=ASKED_MAX_S)
    finally:
        asking.kill()
        asking.wait()
    agents[3].kill(signal.SIGCONT)
    four.wait_for_world(8, after=smaller)
    succeed(four, agents)


def test_deaf_workers_of_a_node_that_is_cut_off_end_in_time(job):
    four = job("3:4")
    agents = four.start(*four.nodes[:3]) + four.start(four.nodes[3], words=["deaf"])
    world = four.wait_for_world(8)
    four.network.cut(four.nodes[3])
    four.wait_for_world(6, after=world)
    four.check()
    four.network.mend(four.nodes[3])
    four.wait_until(lambda: len(four.alive()) == 8, "the return of the fourth")
    succeed(four, agents)


def test_an_agent_that_is_asked_to_end_leaves(job):
    four = job("3:4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    agents[3].kill(signal.SIGTERM)
    assert four.wait_for_exit(agents[3]) == [128 + signal.SIGTERM]
    four.wait_for_world(6, after=world)
    succeed(four, agents[:3])


# Workers that fail


@pytest.mark.parametrize("command", ["exit 7", f"kill {signal.SIGKILL.value}", "raise on purpose"])
def test_a_crash_restarts_everybody_and_everybody_counts_it(job, command):
    four = job("4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.tell(world[5:6], command)
    again = four.wait_for_world(8, after=world)
    assert restart_counts(again) == {1}
    assert [life.node for life in again] == [life.node for life in world]
    succeed(four, agents)
    assert len(four.lives) == 16


@on_embedded
def test_nodes_meet_for_the_next_round_while_the_last_processes_end(job):
    """A node that comes meanwhile is in it: there is no start without it first, and none before the last end."""
    three = job("2:3")
    first, slow, late = three.nodes
    agents = three.start(first, slow)
    world = three.wait_for_world(4)
    (lingers, _) = on(world, slow)
    three.tell([lingers], "deaf")
    three.tell(on(world, first)[:1], "exit 7")
    three.wait_until(lambda: lingers.heard("SIGTERM"), "the signal to stop")
    agents += three.start(late)
    # It says what it waits for only when it has long been in the store.
    while "waiting for the other nodes" not in agents[2].stderr():
        assert three.stays(lambda: not lingers.has_ended, 0.05)
    assert len(three.lives) == 4
    three.tell([lingers], "exit 0")
    larger = three.wait_for_world(6, after=world)
    assert {life.generation for life in larger} == {"2"}
    succeed(three, agents)


def test_the_budget_is_everybodys_and_so_is_the_root_cause(job):
    four = job("4", "--max-restarts=1")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.tell(world[:1], "exit 7")
    again = four.wait_for_world(8, after=world)
    victim = again[7]
    assert victim.node != world[0].node
    four.tell([victim], "exit 9")
    assert four.wait_for_exit(*agents) == [1, 1, 1, 1]
    four.wait_for_end(again)
    causes = {agent.stderr().partition("Root Cause")[2].partition("error_file")[0] for agent in agents}
    assert len(causes) == 1, causes
    (cause,) = causes
    assert f"exitcode  : 9 (pid: {victim.pid})" in cause
    assert f"rank      : {victim.rank} (local_rank: {victim.local_rank})" in cause
    assert len(four.lives) == 16
    four.check()


def test_without_a_budget_the_first_crash_ends_the_job_everywhere(job):
    four = job("4", "--max-restarts=0")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.tell(world[2:3], "exit 7")
    assert four.wait_for_exit(*agents) == [1, 1, 1, 1]
    for agent in agents:
        assert f"exitcode  : 7 (pid: {world[2].pid})" in agent.stderr()
    assert len(four.lives) == 8
    four.check()


def test_crashes_on_all_nodes_at_once_count_once(job):
    four = job("4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.tell(world[::2], "exit 7")
    again = four.wait_for_world(8, after=world)
    assert restart_counts(again) == {1}
    succeed(four, agents)


# The meeting place


@on_embedded
@pytest.mark.parametrize("how", ["killed", "cut"])
def test_the_loss_of_the_serving_node_ends_the_job(job, how):
    # Who is cut off cannot tell that from a cable of its own, and waits for it to be mended.
    four = job("3:4", "--rdzv-conf=join_timeout=5")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    if how == "killed":
        agents[0].kill()
    else:
        four.network.cut(four.nodes[0])
    assert four.wait_for_exit(*agents[1:]) == [1, 1, 1]
    for agent in agents[1:]:
        assert [line for line in agent.stderr().splitlines() if "etcd" in line], agent.stderr()
        assert "Traceback" not in agent.stderr()
    four.wait_for_end([life for node in four.nodes[1:] for life in on(world, node)])
    four.check()


@on_etcd
def test_the_loss_of_etcds_leader_disturbs_nobody(job):
    four = job("4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.place.lose_leader()
    assert four.stays(lambda: not any(life.has_ended for life in world), QUIET_S)
    four.tell(world[3:4], "exit 7")
    again = four.wait_for_world(8, after=world)
    assert restart_counts(again) == {1}
    succeed(four, agents)


@on_etcd
def test_on_etcd_no_node_is_special(job):
    four = job("3:4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    first = four.agent(next(node for node in four.nodes if node.hostname == world[0].node))
    first.kill()
    four.wait_for_world(6, after=world)
    succeed(four, [agent for agent in agents if agent is not first])


@on_etcd
def test_a_run_id_that_has_been_used_up(job):
    four = job("2", nodes=2, run_id="yesterday")
    agents = four.start(*four.nodes)
    four.wait_for_world(4)
    succeed(four, agents)
    (late,) = four.start(four.nodes[0])
    assert four.wait_for_exit(late) == [1]
    last_line = late.stderr().splitlines()[-1]
    assert "yesterday" in last_line
    assert "--rdzv-id" in last_line
    assert len(four.lives) == 4


@on_etcd
def test_two_jobs_at_one_place_do_not_meet(job, tmp_path):
    one = job("2", nodes=4, run_id="one")
    (tmp_path / "other").mkdir()
    flags = [flag.replace("--rdzv-id=one", "--rdzv-id=other") for flag in one.flags]
    with Job(one.network, tmp_path / "other", flags, environment=one.place.environment) as other:
        agents = one.start(*one.nodes[:2])
        others = other.start(*one.nodes[2:])
        one.wait_for_world(4)
        other.wait_for_world(4)
        succeed(one, agents)
        succeed(other, others)


# The end, and spares


def test_the_job_ends_when_the_last_worker_does(job):
    four = job("4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    for life in world[:-1]:
        four.tell([life], "exit 0")
        four.wait_for_end([life])
    assert four.alive() == world[-1:]
    assert all(agent.returncode is None for agent in agents)
    succeed(four, agents)


def test_a_crash_beside_workers_that_are_done_restarts_all(job):
    four = job("4")
    agents = four.start(*four.nodes)
    world = four.wait_for_world(8)
    four.tell(world[:2], "exit 0")
    four.wait_for_end(world[:2])
    four.tell(world[7:], "exit 7")
    again = four.wait_for_world(8, after=world)
    assert restart_counts(again) == {1}
    succeed(four, agents)


def test_a_spare_waits_and_ends_well(job):
    five = job("4", nodes=5)
    agents = five.start(*five.nodes[:4])
    five.wait_for_world(8)
    agents += five.start(five.nodes[4])
    five.wait_for_words(agents[4], "4 nodes run; this one waits as a spare")
    assert len(five.alive()) == len(five.lives) == 8
    succeed(five, agents)


def test_a_spare_steps_in(job):
    five = job("4", nodes=5)
    agents = five.start(*five.nodes[:4])
    world = five.wait_for_world(8)
    agents += five.start(five.nodes[4])
    agents[2].kill()
    again = five.wait_for_world(8, after=world)
    assert on(again, five.nodes[4])
    # The others keep their order, and the spare comes last.
    assert [life.node for life in again] == [*(life.node for life in world if life.node != "node3"), "node5", "node5"]
    succeed(five, [*agents[:2], *agents[3:]])


# Addresses and secrets


@on_embedded
def test_an_ipv6_endpoint(job):
    four = job("4", f"--rdzv-endpoint=[fd00::1]:{PORT}")
    agents = four.start(*four.nodes)
    four.wait_for_world(8)
    succeed(four, agents)


@on_embedded
def test_an_endpoint_by_name(job):
    four = job("4", f"--rdzv-endpoint=node1:{PORT}")
    agents = four.start(*four.nodes)
    four.wait_for_world(8)
    succeed(four, agents)


@on_embedded
def test_a_machine_whose_name_means_its_loopback_is_told_to_others_by_its_name(job, tmp_path):
    """As Debian writes it into /etc/hosts."""
    two = job("2", f"--rdzv-endpoint=node1:{PORT}")
    first, second = two.nodes
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {first.hostname}\n{second.address} {second.hostname}\n")
    first.hosts = str(hosts)
    agents = two.start(first, second)
    master = two.wait_for_world(4)[0].environment
    assert master["MASTER_ADDR"] == first.hostname
    connect = f"import socket; socket.create_connection(({first.hostname!r}, {master['MASTER_PORT']}), 30)"
    for node in two.nodes:
        assert node.run([sys.executable, "-c", connect]).wait(60) == 0
    succeed(two, agents)


def test_the_address_that_a_node_is_told_to_have(job):
    two = job("2")
    agents = [two.start(node, flags=[f"--local-addr={node.address6}"])[0] for node in two.nodes]
    world = two.wait_for_world(4)
    (first,) = (node for node in two.nodes if node.hostname == world[0].node)
    assert world[0].environment["MASTER_ADDR"] == first.address6
    succeed(two, agents)


@on_embedded
def test_without_a_token_nobody_serves_other_machines(job):
    two = job("2", HOLDFAST_TOKEN="")
    agents = two.start(*two.nodes)
    assert two.wait_for_exit(*agents) == [2, 2]
    for agent in agents:
        (line,) = agent.stderr().splitlines()
        assert "HOLDFAST_TOKEN" in line
    assert not two.lives


@on_embedded
def test_a_wrong_token_is_turned_away(job):
    four = job("2:3")
    agents = four.start(*four.nodes[:2])
    world = four.wait_for_world(4)
    (stranger,) = four.start(four.nodes[2], environment={"HOLDFAST_TOKEN": "another one that is long enough"})
    assert four.wait_for_exit(stranger) == [1]
    (line,) = stranger.stderr().splitlines()
    assert "HOLDFAST_TOKEN" in line
    assert not any(life.has_ended for life in world)
    succeed(four, agents)


@on_embedded
def test_the_token_is_not_shown(job):
    two = job("2")
    agents = two.start(*two.nodes)
    world = two.wait_for_world(4)
    two.tell(world[:1], "exit 7")
    two.wait_for_world(4, after=world)
    succeed(two, agents)
    for agent in agents:
        assert TOKEN not in agent.stderr() + agent.stdout()
