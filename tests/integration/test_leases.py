"""What ends a lease, and which store a lease is in: two generations never run at once, whatever happens to connections.

Every test ends with the check that never did two generations run at once.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest
from job_nodes import Job
from meeting_places import PORT, TOKEN

import relay

pytestmark = pytest.mark.root

AWAY_S = 2.0
"""How long it takes to connect again, and how long is looked at what follows from it."""

LONG_LEASE = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=30,keep_alive_max_attempt=4"
"""A lease of 120 s: nobody waits for its end."""

SOON_S = 60.0
"""Long before the end of such a lease."""


SECONDS_LEASE = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=15"
SECONDS_LEASE_S = 15.0
RENEWED_S = 2.0
"""A lease of 15 s that was renewed at most so long ago."""

OFTEN_RENEWED = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=0.02,keep_alive_max_attempt=150"
"""A lease of 3 s that is renewed 50 times a second. One line for each renewal ..."""

SMALL_PIPE_BYTES = 4096
"""... fills a pipe of this size, the smallest there is ..."""

PIPE_IS_FULL_S = 15.0
"""... and whoever waits for room in it has lost the lease before this time."""


class RelayedJob(Job):
    """A job whose agents reach the store through a relay. The agent of the first node serves it, behind the relay."""

    def __init__(self, network, directory):
        *self.nodes, place = network.nodes
        flags = ["--nnodes=2:3", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job", "--rdzv-backend=c10d"]
        flags += [f"--rdzv-endpoint={place.address}:{PORT}"]
        super().__init__(network, directory, flags, environment={"HOLDFAST_TOKEN": TOKEN})
        command = [sys.executable, relay.__file__, place.address, PORT, self.nodes[0].address, PORT]
        self._relay = place.run(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._relay.stdout.readline() == "ready\n"

    def start_host(self, lease="--rdzv-conf=last_call_timeout=1"):
        return self.start(self.nodes[0], flags=[f"{lease},is_host=1"])[0]

    def start_all(self, lease="--rdzv-conf=last_call_timeout=1"):
        return [self.start_host(lease), *self.start(*self.nodes[1:], flags=[f"{lease},is_host=0"])]

    def relay(self, word, node):
        self._relay.stdin.write(f"{word} {node.address}\n")
        self._relay.stdin.flush()
        assert self._relay.stdout.readline() == f"{word}\n"


@pytest.fixture
def relayed(network, tmp_path):
    with RelayedJob(network(4), tmp_path) as job:
        yield job


def on(world, node):
    return [life for life in world if life.node == node.hostname]


def succeed(job, agents):
    job.tell_all("exit 0")
    assert job.wait_for_exit(*agents) == [0] * len(agents), job.describe()
    job.check()


def keeper_of(agent):
    """The process between the agent and its workers."""
    for thread in os.listdir(f"/proc/{agent.pid}/task"):
        with open(f"/proc/{agent.pid}/task/{thread}/children") as file:
            for pid in map(int, file.read().split()):
                with open(f"/proc/{pid}/comm") as comm:
                    if comm.read().strip() == "holdfast-keeper":
                        return pid
    raise AssertionError(f"{agent} has no keeper")


def pipes_of(pid):
    """The paths of its pipes' ends, by the pipes' names."""
    paths = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    return {name: path for path in paths if (name := os.readlink(path)).startswith("pipe:")}


def stop_keeper(agent):
    """Stop it, with as little room as can be in the pipes between it and the agent."""
    keeper = keeper_of(agent)
    ours, theirs = pipes_of(agent.pid), pipes_of(keeper)
    for name in ours.keys() & theirs.keys():
        fd = os.open(ours[name], os.O_RDWR)
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, SMALL_PIPE_BYTES)
        os.close(fd)
    os.kill(keeper, signal.SIGSTOP)


# Connections


def test_a_reset_connection_that_cannot_be_made_again_ends_no_lease_before_the_fence(relayed):
    agents = relayed.start_all()
    world = relayed.wait_for_world(6)
    lost = relayed.nodes[2]
    relayed.relay("hold", lost)
    smaller = relayed.wait_for_world(4, after=world)
    assert all(life.has_ended for life in on(world, lost))
    relayed.relay("release", lost)
    relayed.wait_for_world(6, after=smaller)
    succeed(relayed, agents)


@pytest.mark.parametrize("then", ["hold", "refuse"])
def test_a_reset_connection_that_is_made_again_slowly_goes_unnoticed(relayed, then):
    """Anybody on the way can reset a connection, and refuse the next ones in the name of the store's machine."""
    agents = relayed.start_all(LONG_LEASE)
    world = relayed.wait_for_world(6)
    far = relayed.nodes[2]
    relayed.relay(then, far)
    assert relayed.stays(lambda: not any(life.has_ended for life in world), AWAY_S)
    relayed.relay("release", far)
    assert relayed.stays(lambda: not any(life.has_ended for life in world), AWAY_S)
    succeed(relayed, agents)
    assert len(relayed.lives) == 6


# Stores


def test_nobody_takes_the_store_of_a_restarted_agent_for_the_old_one(relayed):
    host, *others = relayed.start_all()
    world = relayed.wait_for_world(6)
    relayed.relay("hold", relayed.nodes[2])  # it comes back a little later than the other
    host.kill()
    relayed.wait_for_exit(host)
    again = relayed.start_host()
    assert relayed.wait_for_exit(others[0]) == [1], relayed.describe()
    relayed.relay("release", relayed.nodes[2])
    assert relayed.wait_for_exit(others[1]) == [1], relayed.describe()
    for agent in others:
        assert "was replaced" in agent.stderr()
        assert "Traceback" not in agent.stderr()
    relayed.wait_for_end(world)
    assert len(relayed.lives) == 6  # nobody has started anything in the new store
    again.kill(signal.SIGTERM)
    relayed.wait_for_exit(again)
    relayed.check()


# Killed agents


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_the_keeper_of_a_killed_agent_revokes_its_lease(job, warm):
    three = job("2:3", LONG_LEASE, *(["--warm"] if warm else []))
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    agents[2].kill()
    smaller = three.wait_for_world(4, after=world, deadline_s=SOON_S)
    assert not on(smaller, three.nodes[2])
    three.wait_until_empty(three.nodes[2])
    succeed(three, agents[:2])


def test_an_agent_that_has_registered_again_has_its_new_lease_revoked(job):
    """It was stopped for longer than its first lease. The second one runs for so long that nobody waits for its end."""
    three = job("2:3", SECONDS_LEASE)
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    agents[2].kill(signal.SIGSTOP)
    smaller = three.wait_for_world(4, after=world)
    agents[2].kill(signal.SIGCONT)
    whole = three.wait_for_world(6, after=smaller)
    agents[2].kill()
    three.wait_for_world(4, after=whole, deadline_s=SECONDS_LEASE_S - RENEWED_S)
    succeed(three, agents[:2])


def test_without_agent_and_keeper_the_lease_runs_out(job):
    three = job("2:3")
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    keeper = keeper_of(agents[2])
    os.kill(keeper, signal.SIGSTOP)
    agents[2].kill()
    os.kill(keeper, signal.SIGKILL)
    three.wait_for_world(4, after=world)
    succeed(three, agents[:2])


# Stopped keepers


def test_a_stopped_keeper_does_not_hold_up_the_fence(job):
    three = job("2:3")
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    lost = three.nodes[2]
    os.kill(keeper_of(agents[2]), signal.SIGSTOP)
    three.network.cut(lost)
    smaller = three.wait_for_world(4, after=world)
    assert all(life.has_ended for life in on(world, lost))
    three.network.mend(lost)
    three.wait_for_world(6, after=smaller)
    succeed(three, agents)


def test_an_agent_with_a_stopped_keeper_obeys(job):
    three = job("2:3")
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    os.kill(keeper_of(agents[2]), signal.SIGSTOP)
    agents[2].kill(signal.SIGTERM)
    assert three.wait_for_exit(agents[2]) == [128 + signal.SIGTERM]
    three.wait_for_world(4, after=world)
    succeed(three, agents[:2])


def test_a_keeper_that_stays_stopped_costs_no_lease(job):
    three = job("2:3", OFTEN_RENEWED)
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    stop_keeper(agents[2])
    assert three.stays(lambda: not any(life.has_ended for life in world), PIPE_IS_FULL_S), three.describe()
    succeed(three, agents)
    assert len(three.lives) == 6


def test_an_agent_whose_keeper_stays_stopped_obeys(job):
    three = job("2:3", OFTEN_RENEWED)
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    stop_keeper(agents[2])
    three.stays(lambda: not any(life.has_ended for life in world), PIPE_IS_FULL_S)
    agents[2].kill(signal.SIGTERM)
    assert three.wait_for_exit(agents[2]) == [128 + signal.SIGTERM]
    three.wait_for_world(4)
    succeed(three, agents[:2])
