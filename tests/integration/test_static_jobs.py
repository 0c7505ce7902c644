"""Jobs whose nodes were told their ranks and the master's address, as torchrun's default backend has it.

Every test ends with the check that never did two generations run at once, and that each was of one mind.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import node_worker
import pytest
from job_nodes import HOLDFAST, Job, restart_counts, succeed
from meeting_places import TOKEN
from worker_lives import problems

pytestmark = pytest.mark.root

PORT = 29500
"""Where the workers' store is. The agents meet at the next port."""

NO_SERVER = "still trying"
"""What an agent says that does not find the node of rank 0."""

WAITS = "up to 900 s"
"""What an agent says that has found it, and waits for other nodes."""

UNGUARDED = "without a token"
"""Part of the warning that everybody who reaches the port can end the job."""

ASKED_MAX_S = 120
"""More than `holdfast stacks` waits for an answer."""

LOOP = ("sh", "-c", '"$@" && "$@" && "$@"', "sh", *HOLDFAST)
"""A job three times, one after the other."""

LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
sys.stdin.read()
"""

ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print("sum", int(total), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


class StaticJob(Job):
    """A job of `size` nodes, each of which is told its rank. Nodes beyond that may replace one."""

    def __init__(self, network, directory, size, flags, environment, launcher):
        self.nodes = network.nodes
        common = [f"--nnodes={size}", f"--master-addr={self.nodes[0].address}", f"--master-port={PORT}"]
        common += ["--nproc-per-node=2", "--max-restarts=3", *flags]
        super().__init__(network, directory, common, environment=environment, launcher=launcher)

    def start_rank(self, rank, node=None, flags=(), **others):
        """Start the agent of that rank, on the machine of that number unless it is to be another one."""
        (agent,) = self.start(node or self.nodes[rank], flags=[f"--node-rank={rank}", *flags], **others)
        return agent

    def start_ranks(self, *ranks, **others):
        return [self.start_rank(rank, **others) for rank in ranks]


@pytest.fixture
def static(network, tmp_path):
    """Makes jobs: `static(2)` is one of two workers a node on two nodes, all idle."""
    made = []

    def make(size, *flags, nodes=0, launcher=HOLDFAST, token=TOKEN, **environment):
        if token:
            environment["HOLDFAST_TOKEN"] = token
        made.append(StaticJob(network(nodes or size), tmp_path, size, flags, environment, launcher))
        return made[-1]

    yield make
    for job in made:
        job.close()


def group_ranks(world):
    """The group ranks of machines, by name."""
    return {life.node: life.group_rank for life in world}


def as_given(job):
    return {node.hostname: rank for rank, node in enumerate(job.nodes)}


def root_causes(agents):
    return {agent.stderr().partition("Root Cause")[2].partition("\n====")[0] for agent in agents}


def expect_success(job, agents, world):
    """This job ends well. The generations of each job have numbers of their own."""
    job.tell_all("exit 0")
    job.wait_for_end(world)
    if agents:
        assert job.wait_for_exit(*agents) == [0] * len(agents), job.describe()
    assert not problems(world), job.describe()


def rounds(directory):
    """What the events of the only run there tell of its attempts."""
    (run,) = directory.iterdir()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event["metadata"]["details"] for event in events if event["name"] == "holdfast.attempt.started"]


def take_port(node, port):
    """Let something else listen there. It ends with its node."""
    listener = node.run(
        [sys.executable, "-c", LISTEN, node.address, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert listener.stdout.readline() == "ready\n"


# Meeting


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_nodes_start_in_any_order_and_have_the_ranks_that_they_were_given(static, order):
    three = static(3)
    agents = []
    for number, rank in enumerate(order):
        agents.append(three.start_rank(rank))
        if number < 2:
            three.wait_for_words(agents[-1], WAITS if 0 in order[: number + 1] else NO_SERVER)
            assert three.lives == []
    world = three.wait_for_world(6)
    assert [life.group_rank for life in world] == [0, 0, 1, 1, 2, 2]
    assert group_ranks(world) == as_given(three)
    assert {life.master for life in world} == {f"{three.nodes[0].address}:{PORT}"}
    assert restart_counts(world) == {0}
    succeed(three, agents)


def test_nodes_with_different_workers_programs_and_run_ids_are_one_world(static, tmp_path):
    two = static(2)
    program = shutil.copy(node_worker.__file__, tmp_path / "another_program.py")
    agents = [
        two.start_rank(0, flags=["--nproc-per-node=1", "--rdzv-id=one"]),
        two.start_rank(1, flags=["--nproc-per-node=3", "--rdzv-id=another"], program=program),
    ]
    world = two.wait_for_world(4)
    assert [(life.group_rank, life.local_rank) for life in world] == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert [life.environment["LOCAL_WORLD_SIZE"] for life in world] == ["1", "3", "3", "3"]
    assert [life.environment["TORCHELASTIC_RUN_ID"] for life in world] == ["one", *["another"] * 3]
    two.tell([world[2]], "exit 3")
    again = two.wait_for_world(4, after=world)
    assert [(life.group_rank, life.local_rank) for life in again] == [(0, 0), (1, 0), (1, 1), (1, 2)]
    succeed(two, agents)


@pytest.mark.parametrize("rank", [0, 1])
def test_half_a_job_never_runs(static, rank):
    """A node that is alone gives up in time, and has started nothing."""
    two = static(2, "--rdzv-conf=join_timeout=2")
    agent = two.start_rank(rank)
    assert two.wait_for_exit(agent) == [1]
    assert ("could not be reached for 2 s" if rank else "only 1 of 2 nodes joined within 2 s") in agent.stderr()
    assert two.lives == []


def test_nodes_may_meet_at_another_port(static):
    two = static(2, "--rdzv-conf=meeting_port=4711")
    take_port(two.nodes[0], PORT + 1)
    agents = two.start_ranks(0, 1)
    world = two.wait_for_world(4)
    assert {life.master for life in world} == {f"{two.nodes[0].address}:{PORT}"}
    succeed(two, agents)


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (PORT + 1, f"--master-port {PORT}: the nodes meet at port {PORT + 1}, or at another one with --rdzv-conf"),
        (PORT, f"--master-port {PORT}: "),
    ],
    ids=["meeting port", "master port"],
)
def test_a_port_that_is_taken_is_named_by_its_option(static, taken, words):
    two = static(2, "--rdzv-conf=join_timeout=5")
    take_port(two.nodes[0], taken)
    agents = two.start_ranks(1, 0)
    assert two.wait_for_exit(*agents) == [1, 2]
    assert words in agents[1].stderr()
    assert "Traceback" not in agents[1].stderr()
    assert two.lives == []


def test_nodes_may_meet_at_an_ipv6_address(static):
    two = static(2)
    agents = two.start_ranks(0, 1, flags=[f"--master-addr={two.nodes[0].address6}"])
    world = two.wait_for_world(4)
    assert {life.environment["MASTER_ADDR"] for life in world} == {two.nodes[0].address6}
    succeed(two, agents)


def test_agents_on_one_machine_meet_on_loopback_without_a_token(static):
    one = static(2, "--master-addr=127.0.0.1", nodes=1, token="")
    agents = [one.start_rank(rank, one.nodes[0]) for rank in (0, 1)]
    world = one.wait_for_world(4)
    assert [(life.group_rank, life.local_rank) for life in world] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    one.tell_all("exit 0")
    assert one.wait_for_exit(*agents) == [0, 0], one.describe()
    assert not any(UNGUARDED in agent.stderr() for agent in agents)


def test_each_node_has_the_masters_address_as_it_was_told(static):
    two = static(2)
    first = two.nodes[0]
    agents = [two.start_rank(0), two.start_rank(1, flags=[f"--master-addr={first.hostname}"])]
    two.wait_until(lambda: len(two.alive()) == 4, "4 workers")
    world = sorted(two.alive(), key=lambda life: life.rank)
    assert [life.rank for life in world] == [0, 1, 2, 3]
    assert [life.environment["MASTER_ADDR"] for life in world] == [first.address] * 2 + [first.hostname] * 2
    assert {life.environment["MASTER_PORT"] for life in world} == {str(PORT)}
    two.tell_all("exit 0")
    assert two.wait_for_exit(*agents) == [0, 0]
    assert not [problem for problem in problems(two.lives) if "does not agree on its master" not in problem]


# One job


def test_a_worker_that_fails_restarts_all_until_the_budget_is_spent(static):
    three = static(3, "--max-restarts=1")
    agents = three.start_ranks(0, 1, 2)
    world = three.wait_for_world(6)
    three.tell([three.worker(three.nodes[1], 0)], "raise the loss is not a number")
    again = three.wait_for_world(6, after=world)
    assert restart_counts(again) == {1}
    assert group_ranks(again) == as_given(three)
    cause = three.worker(three.nodes[2], 1)
    three.tell([cause], "raise the loss is infinite")
    assert three.wait_for_exit(*agents) == [1, 1, 1], three.describe()
    (block,) = root_causes(agents)
    assert f"(pid: {cause.pid})" in block
    assert "RuntimeError: the loss is infinite" in block
    three.check()


def test_the_last_worker_may_fail_although_other_nodes_are_done(static):
    """A node whose workers are done waits for the others, and its workers are started again with theirs."""
    two = static(2)
    agents = two.start_ranks(0, 1)
    world = two.wait_for_world(4)
    two.tell(two.alive(two.nodes[1]), "exit 0")
    two.wait_for_words(agents[1], "the workers of this node are done; waiting for the other nodes")
    two.tell([two.worker(two.nodes[0], 1)], "exit 3")
    again = two.wait_for_world(4, after=world)
    assert restart_counts(again) == {1}
    two.tell(two.alive(two.nodes[0]), "exit 0")  # the node that serves the store waits, too
    two.wait_for_words(agents[0], "the workers of this node are done; waiting for the other nodes")
    assert [agent.returncode for agent in agents] == [None, None]
    succeed(two, agents)


def test_the_nodes_of_a_job_record_the_same_job(static, tmp_path):
    two = static(2)
    agents = [two.start_rank(rank, flags=[f"--log-dir={tmp_path / str(rank)}"]) for rank in (0, 1)]
    two.wait_for_world(4)
    succeed(two, agents)
    (ours,), (theirs,) = rounds(tmp_path / "0"), rounds(tmp_path / "1")
    assert ours["job"] == theirs["job"] != ""
    assert (ours["ranks"], theirs["ranks"]) == ([0, 1], [2, 3])


def test_sigterm_to_all_ends_all(static):
    two = static(2)
    agents = two.start_ranks(0, 1)
    two.wait_for_world(4)
    for agent in agents:
        agent.kill(signal.SIGTERM)
    assert two.wait_for_exit(*agents) == [128 + signal.SIGTERM] * 2, two.describe()
    assert not two.alive()
    two.check()


@pytest.mark.torch
def test_torch_adds_up_over_all_nodes(static, tmp_path):
    program = tmp_path / "all_reduce.py"
    program.write_text(ALL_REDUCE)
    two = static(2)
    agents = [
        two.start_rank(0, flags=[f"--master-addr={two.nodes[0].hostname}"], program=str(program)),
        two.start_rank(1, program=str(program)),
    ]
    assert two.wait_for_exit(*agents) == [0, 0], two.describe()
    for agent in agents:
        assert agent.stdout().count("sum 10 of 4") == 2, agent.stdout()


# Losses


@pytest.mark.parametrize(
    ("signum", "place"),
    [(signal.SIGKILL, 1), (signal.SIGKILL, 3), (signal.SIGTERM, 3)],
    ids=["killed, and on the same machine again", "killed", "asked to leave"],
)
def test_a_node_that_is_gone_is_replaced_while_the_others_wait(static, signum, place):
    three = static(3, "--max-restarts=0", nodes=4)
    agents = three.start_ranks(0, 1, 2)
    world = three.wait_for_world(6)
    agents[1].kill(signum)
    three.wait_for_exit(agents[1])
    three.wait_for_end(world)
    three.wait_for_words(agents[0], WAITS)
    three.wait_for_words(agents[2], WAITS)
    assert not three.alive()
    node = three.nodes[place]
    agents[1] = three.start_rank(1, node)
    world = three.wait_for_world(6)
    assert group_ranks(world) == {"node1": 0, node.hostname: 1, "node3": 2}
    assert restart_counts(world) == {0}
    succeed(three, agents)


def test_a_replacement_may_come_before_the_loss_is_known(static):
    two = static(2, nodes=3)
    agents = two.start_ranks(0, 1)
    two.wait_for_world(4)
    gone, spare = two.nodes[1:]
    two.network.cut(gone)
    agents.append(two.start_rank(1, spare))
    two.wait_until(lambda: two.alive(spare), "the replacement's workers")
    world = two.wait_for_world(4)
    assert group_ranks(world) == {"node1": 0, spare.hostname: 1}
    assert restart_counts(world) == {0}
    two.network.mend(gone)
    assert two.wait_for_exit(agents.pop(1)) == [2]
    assert f"rank 1 is taken by {spare.hostname}" in two.agents[1].stderr()
    assert set(two.alive()) == set(world)
    succeed(two, agents)


def test_a_node_that_is_cut_off_stops_before_others_run_again_and_comes_back(static):
    two = static(2)
    agents = two.start_ranks(0, 1)
    world = two.wait_for_world(4)
    two.network.cut(two.nodes[1])
    two.wait_for_end(world)
    two.wait_for_words(agents[0], "1 node is left and 2 are needed")
    two.network.mend(two.nodes[1])
    again = two.wait_for_world(4, after=world)
    assert restart_counts(again) == {0}
    assert group_ranks(again) == as_given(two)
    succeed(two, agents)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked to leave"])
def test_the_loss_of_the_node_of_rank_0_ends_the_job_for_all(static, signum):
    three = static(3)
    agents = three.start_ranks(0, 1, 2)
    three.wait_for_world(6)
    agents[0].kill(signum)
    expected = -signum if signum == signal.SIGKILL else 128 + signum
    assert three.wait_for_exit(*agents) == [expected, 1, 1], three.describe()
    for node in three.nodes:
        three.wait_until_empty(node)
    three.check()


def test_a_job_is_begun_again_by_its_nodes_as_each_of_them_is_started_again(static):
    """As a cluster does it that starts each node again when it has ended, and knows nothing of the others."""
    two = static(2)
    agents = two.start_ranks(0, 1)
    world = two.wait_for_world(4)
    agents[0].kill()
    two.wait_for_exit(agents[0])
    again = [two.start_rank(0)]
    assert two.wait_for_exit(agents[1]) == [1]
    again.append(two.start_rank(1))
    expect_success(two, again, two.wait_for_world(4, after=world))


# Nodes that were told different things


@pytest.mark.parametrize("is_on", [True, False], ids=["a job that runs", "a job that waits"])
def test_a_second_node_of_the_same_rank_is_refused(static, is_on):
    size = 2 if is_on else 3
    job = static(size, nodes=4)
    agents = job.start_ranks(0)
    job.wait_for_words(agents[0], WAITS)
    agents += job.start_ranks(1)
    if is_on:
        world = job.wait_for_world(4)
    else:
        job.wait_for_words(agents[1], WAITS)
    second = job.start_rank(1, job.nodes[3])
    assert job.wait_for_exit(second) == [2]
    assert "--node-rank 1: this node is not let in: rank 1 is taken by node2" in second.stderr()
    assert "Traceback" not in second.stderr()
    if is_on:
        assert set(job.alive()) == set(world)
    else:
        assert job.lives == []
        agents += job.start_ranks(2)
        job.wait_for_world(6)
    succeed(job, agents)


def test_a_node_whose_rank_was_forgotten_is_refused_as_a_second_rank_0(static):
    two = static(2, "--rdzv-conf=close_timeout=1")
    agents = two.start_ranks(0)
    two.wait_for_words(agents[0], WAITS)
    forgotten = two.start_rank(0, two.nodes[1])
    assert two.wait_for_exit(forgotten) == [2]
    assert "--node-rank 0: this node is not let in: rank 0 is taken by node1" in forgotten.stderr()
    agents += two.start_ranks(1)
    two.wait_for_world(4)
    succeed(two, agents)


@pytest.mark.parametrize("size", [2, 4])
def test_a_node_that_was_told_another_size_is_refused(static, size):
    three = static(3)
    agents = three.start_ranks(0)
    three.wait_for_words(agents[0], WAITS)
    other = three.start_rank(1, flags=[f"--nnodes={size}"])
    assert three.wait_for_exit(other) == [2]
    words = f"--nnodes is {size} here and 3 on another node; give all nodes the same"
    assert f"--node-rank 1: this node is not let in: {words}" in other.stderr()
    agents += three.start_ranks(1, 2)
    world = three.wait_for_world(6)
    late = three.start_rank(1, flags=[f"--nnodes={size}"], node=three.nodes[2])
    assert three.wait_for_exit(late) == [2]
    assert words in late.stderr()
    assert set(three.alive()) == set(world)
    succeed(three, agents)


# Trust


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(TOKEN, TOKEN[::-1]), (TOKEN, ""), ("", TOKEN)],
    ids=["another token", "no token", "a token where the others have none"],
)
def test_a_node_without_the_jobs_token_is_refused(static, ours, theirs):
    two = static(2, token=ours)
    agents = two.start_ranks(0)
    two.wait_for_words(agents[0], WAITS)
    stranger = two.start_rank(1, environment={"HOLDFAST_TOKEN": theirs})
    assert two.wait_for_exit(stranger) == [1]
    assert "token" in stranger.stderr()
    assert "Traceback" not in stranger.stderr()
    agents += two.start_ranks(1)
    two.wait_for_world(4)
    succeed(two, agents)


def test_a_job_without_a_token_runs_and_says_so_once_on_each_node(static):
    two = static(2, token="")
    agents = two.start_ranks(0, 1)
    world = two.wait_for_world(4)
    two.tell([world[3]], "exit 3")
    two.wait_for_world(4, after=world)
    succeed(two, agents)
    for agent in agents:
        assert agent.stderr().count(UNGUARDED) == 1, agent.stderr()


@pytest.mark.parametrize(("token", "known"), [(TOKEN, [0, 1, 2, 3]), ("", [2, 3])], ids=["a token", "no token"])
def test_a_person_sees_the_stacks_of_the_nodes_that_trust_each_other(static, tmp_path, token, known):
    two = static(2, token=token)
    agents = [two.start_rank(rank, flags=[f"--log-dir={tmp_path / str(rank)}"]) for rank in (0, 1)]
    two.wait_for_world(4)
    (directory,) = (tmp_path / "1").iterdir()
    command = [sys.executable, "-m", "holdfast", "stacks", "--json", directory]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=ASKED_MAX_S, check=False)
    assert asked.returncode == 0, asked.stderr
    dump = json.loads(asked.stdout)
    assert sorted(map(int, dump["ranks"])) == known
    succeed(two, agents)


# One job after the other


@pytest.mark.parametrize("token", [TOKEN, ""], ids=["a token", "no token"])
def test_jobs_one_after_the_other_at_the_same_port(static, token):
    two = static(2, launcher=LOOP, token=token)
    agents = two.start_ranks(0, 1)
    world = ()
    for number in range(3):
        world = two.wait_for_world(4, after=world)
        assert group_ranks(world) == as_given(two)
        assert restart_counts(world) == {0}
        expect_success(two, agents if number == 2 else (), world)
    assert len(two.lives) == 12


def test_a_job_after_one_that_failed(static):
    two = static(2, "--max-restarts=0")
    agents = two.start_ranks(0, 1)
    world = two.wait_for_world(4)
    two.tell(world[:1], "exit 3")
    assert two.wait_for_exit(agents[1]) == [1]
    again = two.start_ranks(1)  # the other agent may still serve the store of the job that failed
    assert two.wait_for_exit(agents[0]) == [1]
    again += two.start_ranks(0)
    expect_success(two, again, two.wait_for_world(4, after=world))
