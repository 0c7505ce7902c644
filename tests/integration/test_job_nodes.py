"""Jobs on several nodes, as tests see them: proven with the launcher that is there already."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from job_nodes import TORCHRUN, Job
from liveness import exists

pytestmark = pytest.mark.root

# A launcher of one worker, for all that a real one is not needed for.
LEAST_LAUNCHER = """
import os, subprocess, sys
rank = os.environ.get("AT", "0")
told = dict(RANK=rank, WORLD_SIZE="2", LOCAL_RANK="0", GROUP_RANK=rank, MASTER_ADDR="node1", MASTER_PORT="1")
told["TORCHELASTIC_RESTART_COUNT"] = "0"
sys.exit(subprocess.call([sys.executable, *sys.argv[1:]], env={**os.environ, **told}))
"""
LEAST = (sys.executable, "-c", LEAST_LAUNCHER)


@pytest.fixture
def job(network, tmp_path):
    """Unlike that of the other tests, it needs nothing of holdfast."""
    made = []

    def make(size, *flags, launcher=LEAST, **environment):
        net = network(size)
        made.append(Job(net, tmp_path, flags, launcher=launcher, environment=environment))
        return net, made[-1]

    yield make
    for each in made:
        each.close()


def two(job):
    net, pair = job(2)
    first, second = net.nodes
    return net, pair, *pair.start(first), *pair.start(second, environment={"AT": "1"})


def test_workers_are_heard_and_obey(job):
    _, pair, first, second = two(job)
    world = pair.wait_for_world(2)
    assert [life.node for life in world] == [life.host for life in world] == ["node1", "node2"]
    assert pair.worker(second.node, 0) is world[1]
    pair.tell(world[:1], "print hello")
    pair.wait_until(lambda: world[0].heard("done"), "obedience")
    assert "hello\n" in first.stdout()
    pair.tell(world[:1], "exit 3")
    pair.tell(world[1:], "raise on purpose")
    assert pair.wait_for_exit(first, second) == [3, 1]
    pair.wait_for_end(world)
    assert "RuntimeError: on purpose" in second.stderr()
    pair.check()


def test_a_worker_that_is_signalled_says_so_and_ends(job):
    _, pair, first, second = two(job)
    world = pair.wait_for_world(2)
    pair.tell(world[1:], "deaf")
    pair.wait_until(lambda: world[1].heard("done"), "obedience")
    for life in world:
        os.kill(life.pid, signal.SIGTERM)
    assert pair.wait_for_exit(first) == [128 + signal.SIGTERM]
    pair.wait_until(lambda: all(life.heard("SIGTERM") for life in world), "signals")
    assert pair.alive() == world[1:]
    pair.tell_all(f"kill {signal.SIGKILL.value}")
    assert pair.wait_for_exit(second) == [256 - signal.SIGKILL]


def test_workers_of_two_generations_at_once_are_noticed(job):
    net, pair, *_ = two(job)
    pair.wait_for_world(2)
    pair.start(net.nodes[0], environment={"HOLDFAST_GENERATION": "2"})
    pair.wait_until(lambda: len(pair.alive()) == 3, "the third")
    with pytest.raises(AssertionError, match="two generations at once"):
        pair.check()


def test_an_agents_silence_ends_with_its_words(job):
    _, pair, *_ = two(job)
    pair.wait_for_world(2)
    with pytest.raises(TimeoutError, match=r"a world of 3 within 0\.1 s\n(.|\n)*agent of node2, pid \d+, runs"):
        pair.wait_for_world(3, deadline_s=0.1)
    assert pair.stays(lambda: len(pair.alive()) == 2, 0.1)
    assert not pair.stays(lambda: len(pair.alive()) == 3, 0.1)


def test_a_worker_ends_with_its_test(job):
    _, pair, first, _ = two(job)
    (life, _) = pair.wait_for_world(2)
    pair.close()
    assert first._process.wait(60) == 1
    assert not exists(life.pid)
    assert "is over" in first.stderr()


@pytest.mark.torch
class TestTorchrun:
    @pytest.fixture
    def three(self, job):
        def start(nnodes, nodes, **environment):
            flags = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29400"]
            flags += [f"--nnodes={nnodes}", "--max-restarts=3", "--rdzv-id=three", "--rdzv-conf=last_call_timeout=1"]
            net, made = job(3, *flags, launcher=TORCHRUN, **environment)
            return net, made, made.start(*net.nodes[:nodes])

        return start

    def test_a_job_from_start_to_end(self, three):
        _, made, agents = three(3, 3)
        world = made.wait_for_world(6)
        assert {life.environment["TORCHELASTIC_RUN_ID"] for life in world} == {"three"}
        made.tell_all("exit 0")
        assert made.wait_for_exit(*agents) == [0, 0, 0]
        made.check()

    def test_a_crash_restarts_everybody_and_only_one_counts_it(self, three):
        _, made, agents = three(3, 3)
        world = made.wait_for_world(6)
        made.tell(world[5:], "exit 7")
        again = made.wait_for_world(6, after=world)
        assert sorted(life.restart_count for life in again) == [0, 0, 0, 0, 1, 1]
        with pytest.raises(AssertionError, match="two generations at once"):
            made.check()
        made.tell_all("exit 0")
        assert made.wait_for_exit(*agents) == [0, 0, 0]

    def test_workers_outlive_an_agent_that_was_killed(self, three):
        net, made, agents = three("2:3", 3)
        made.wait_for_world(6)
        agents[2].kill()
        made.wait_for_exit(agents[2])
        assert made.stays(lambda: len(made.alive(net.nodes[2])) == 2, 1)
