"""Four machines whose clocks disagree, and one verdict on what failed.

The workers are connected to each other, so that the end of one is soon felt by all: those are victims, and none of them
may be called the cause.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import mesh_worker
import pytest

pytestmark = pytest.mark.root

SHIFTED_CLOCK = os.path.join(os.path.dirname(mesh_worker.__file__), "shifted_clock")
"""In the PYTHONPATH of a program, this changes its clock."""

on_embedded = pytest.mark.parametrize("place_name", ["embedded"], indirect=True)

OFFSETS_S = (0, 600, -900, 120)
"""How far the wall clocks of the nodes are ahead of the true time."""

AHEAD, BEHIND = OFFSETS_S.index(600), OFFSETS_S.index(-900)
whose_clock = pytest.mark.parametrize("index", [pytest.param(AHEAD, id="ahead"), pytest.param(BEHIND, id="behind")])
everywhere = pytest.mark.parametrize(
    ("place_name", "index"),
    [
        pytest.param("embedded", AHEAD, id="embedded-ahead"),
        pytest.param("embedded", BEHIND, id="embedded-behind"),
        pytest.param("etcd", BEHIND, id="etcd-behind", marks=pytest.mark.etcd),
    ],
    indirect=["place_name"],
)

TEST_MAX_S = 50
"""How long a test takes at most on a machine that is busy: less than the clocks differ."""

HANG_TIMEOUT_S = 2


class Run:
    """A job whose nodes each have a clock and a directory of their own."""

    def __init__(self, job, directory):
        self.job = job
        self.agents = []
        self._directory = directory

    def start(self, *, order=""):
        for node, offset_s in zip(self.job.nodes, OFFSETS_S, strict=False):
            self.agents += self.job.start(
                node,
                flags=[f"--log-dir={self._directory / 'logs' / node.hostname}", mesh_worker.__file__],
                environment={
                    "PYTHONPATH": SHIFTED_CLOCK,
                    "TEST_CLOCK_OFFSET_S": str(offset_s),
                    "MESH_ORDER": str(order),
                },
            )
        return self.wait_for_world(2 * len(self.job.nodes))

    def wait_for_world(self, size, after=()):
        """The workers by rank, once all have met."""
        self.job.wait_for_world(size, after=after)
        self.job.wait_until(
            lambda: sum(life.heard("together") is not None for life in self.job.alive()) == size,
            f"{size} workers that have met",
        )
        return sorted(self.job.alive(), key=lambda life: life.rank)

    def worker(self, index, local_rank=1):
        return self.job.worker(self.job.nodes[index], local_rank)

    def directory(self, agent):
        """The directory of the run, as this agent keeps it."""
        (name,) = os.listdir(self._directory / "logs" / agent.node.hostname)
        return self._directory / "logs" / agent.node.hostname / name

    def events(self, agent):
        with open(self.directory(agent) / "events.jsonl") as lines:
            return [json.loads(line) for line in lines]

    def told(self, agent, name):
        """What the events of this name tell, in order."""
        return [event["metadata"]["details"] for event in self.events(agent) if event["name"] == f"holdfast.{name}"]

    def expect_success(self, agents):
        self.job.tell_all("finish")
        assert self.job.wait_for_exit(*agents) == [0] * len(agents), self.job.describe()

    def expect_failure(self):
        """The block of text about the root cause, and the last verdict, both the same on all nodes."""
        assert self.job.wait_for_exit(*self.agents) == [1] * len(self.agents), self.job.describe()
        blocks = {agent.stderr().partition("Root Cause")[2].partition("\n====")[0] for agent in self.agents}
        assert len(blocks) == 1, "\n\n".join(blocks)
        (verdict,) = self.last_verdicts()
        assert verdict["decision"] == "stop"
        return blocks.pop(), verdict

    def last_verdicts(self):
        """The verdicts on the last attempt, of which there should be one."""
        found = []
        for agent in self.agents:
            *_, last = self.told(agent, "verdict")
            if last not in found:
                found.append(last)
        return found


@pytest.fixture
def run(job, tmp_path):
    """Makes runs: `run("4", "--max-restarts=0")`."""
    return lambda nnodes, *flags: Run(job(nnodes, *flags), tmp_path)


def check_cause(block, verdict, life, kind, exit_code):
    """The verdict is on this worker, and the text says so."""
    cause = verdict["cause"]
    found = {name: cause[name] for name in ("kind", "rank", "local_rank", "host", "pid", "exit_code")}
    assert found == {
        "kind": kind,
        "rank": life.rank,
        "local_rank": life.local_rank,
        "host": life.host,
        "pid": life.pid,
        "exit_code": exit_code,
    }, block
    assert f"rank      : {life.rank} (local_rank: {life.local_rank})" in block
    assert f"host      : {life.host}" in block
    assert f"(pid: {life.pid})" in block
    assert f"kind      : {kind}" in block
    assert ("victims   :" in block) == (verdict["victims"] > 0)
    assert 0 <= verdict["victims"] <= 7
    assert f"victims   : {verdict['victims']} more" in block or not verdict["victims"]


# Clocks


@on_embedded
def test_the_clocks_disagree(run):
    four = run("4", "--max-restarts=0")
    world = four.start()
    offsets = {node.hostname: offset_s for node, offset_s in zip(four.job.nodes, OFFSETS_S, strict=True)}
    for life in world:
        (clock,) = (said for said in life.said if said["event"] == "clock")
        assert abs(clock["time"] - time.time() - offsets[life.node]) < TEST_MAX_S
        assert abs(clock["time_ns"] / 1e9 - clock["time"]) < 1
    four.expect_success(four.agents)
    for agent in four.agents:
        for event in four.events(agent):
            assert abs(event["timestamp"] - time.time() - offsets[agent.node.hostname]) < TEST_MAX_S


# Exceptions


@everywhere
def test_an_exception_is_the_cause_on_all_nodes(run, index):
    four = run("4", "--max-restarts=0")
    four.start()
    life = four.worker(index)
    four.job.tell([life], "compute the loss is not a number")
    block, verdict = four.expect_failure()
    check_cause(block, verdict, life, "exception", 1)
    assert verdict["cause"]["exception"] == "ValueError"
    assert verdict["cause"]["where"].startswith(f"{mesh_worker.__file__}:")
    assert verdict["cause"]["where"].endswith("in compute")
    assert "ValueError: the loss is not a number" in block


@on_embedded
@whose_clock
def test_victims_that_tell_first_are_not_the_cause(run, index, tmp_path):
    four = run("4", "--max-restarts=0")
    order = tmp_path / "order"
    order.mkdir()
    world = four.start(order=order)
    life = four.worker(index)
    others = [other.rank for other in world if other is not life]
    four.job.tell([life], f"betray {json.dumps(others)}")
    block, verdict = four.expect_failure()
    # Its interpreter was stopped on its way out, but it had raised before.
    check_cause(block, verdict, life, "exception", -signal.SIGTERM)
    assert verdict["cause"]["where"].endswith("in compute")
    assert "ValueError: betrayed" in block
    assert verdict["victims"] == 7
    for agent in four.agents:
        for failure in four.told(agent, "failure"):
            assert failure["kind"] == ("exception" if failure["pid"] == life.pid else "communication")


@on_embedded
def test_every_attempt_has_a_verdict_of_its_own(run):
    four = run("4", "--max-restarts=1")
    world = four.start()
    first = four.worker(AHEAD)
    four.job.tell([first], "compute once")
    again = four.wait_for_world(8, after=world)
    assert {life.restart_count for life in again} == {1}
    second = four.worker(BEHIND, local_rank=0)
    os.kill(second.pid, signal.SIGKILL)
    block, verdict = four.expect_failure()
    check_cause(block, verdict, second, "killed", -signal.SIGKILL)
    verdicts = [four.told(agent, "verdict") for agent in four.agents]
    assert verdicts == [verdicts[0]] * 4
    earlier, later = verdicts[0]
    assert (earlier["decision"], earlier["attempt"]) == ("restart", 1)
    assert (earlier["cause"]["kind"], earlier["cause"]["pid"]) == ("exception", first.pid)
    assert (later["decision"], later["attempt"]) == ("stop", 2)


# Kills


@on_embedded
@whose_clock
def test_a_kill_from_outside_is_the_cause_on_all_nodes(run, index):
    four = run("4", "--max-restarts=0")
    four.start()
    life = four.worker(index, local_rank=0)
    os.kill(life.pid, signal.SIGKILL)
    block, verdict = four.expect_failure()
    check_cause(block, verdict, life, "killed", -signal.SIGKILL)


# Hangs


def stacks_of_all(four):
    """The dumps of all eight ranks, with the agents that made them."""
    found = []
    for agent in four.agents:
        directory = four.directory(agent) / "stacks"
        for path in directory.glob("hang-*.json"):
            dump = json.loads(path.read_text())
            if len(dump["ranks"]) == 8:
                found.append((agent, dump, path.with_suffix(".txt").read_text()))
    return found


def check_stacks(four, life):
    """One node has the stacks of all ranks, and the one that stands elsewhere is named."""
    ((agent, dump, text),) = stacks_of_all(four)
    assert sorted(map(int, dump["ranks"])) == list(range(8))
    assert dump["outliers"] == [life.rank]
    assert dump["missing"] == {}
    assert "stand_still_for_no_reason" in dump["ranks"][str(life.rank)]["text"]
    waiting = [stacks["text"] for rank, stacks in dump["ranks"].items() if rank != str(life.rank)]
    assert all("wait_for_peer" in each for each in waiting)
    assert "stand_still_for_no_reason" in text
    # The monotonic clock is the machine's, and all nodes are on one.
    kept_at = min(at(event) for event in four.events(agent) if event["name"] == "holdfast.stacks")
    ended_at = [at(event) for each in four.agents for event in four.events(each) if is_first_end(event)]
    assert len(ended_at) == 4
    assert kept_at < min(ended_at)


def at(event):
    return event["metadata"]["monotonic"]


def is_first_end(event):
    return event["name"] == "holdfast.attempt.ended" and event["metadata"]["details"]["attempt"] == 1


@everywhere
def test_the_rank_that_stands_elsewhere_is_the_cause_of_a_hang(run, index):
    four = run("4", "--max-restarts=0", f"--hang-timeout={HANG_TIMEOUT_S}")
    four.start()
    life = four.worker(index)
    four.job.tell([life], "stall")
    block, verdict = four.expect_failure()
    check_cause(block, verdict, life, "hang", -signal.SIGTERM)
    assert verdict["cause"]["where"].endswith("in stand_still_for_no_reason")
    check_stacks(four, life)


@on_embedded
def test_a_job_goes_on_after_a_hang(run):
    four = run("4", "--max-restarts=1", f"--hang-timeout={HANG_TIMEOUT_S}")
    world = four.start()
    life = four.worker(BEHIND)
    four.job.tell([life], "stall")
    again = four.wait_for_world(8, after=world)
    assert {each.restart_count for each in again} == {1}
    four.expect_success(four.agents)
    (verdict,) = four.last_verdicts()
    assert verdict["decision"] == "restart"
    assert (verdict["cause"]["kind"], verdict["cause"]["pid"]) == ("hang", life.pid)
    check_stacks(four, life)


@on_embedded
def test_a_person_sees_the_stacks_of_all_nodes(run):
    four = run("4", "--max-restarts=0")
    world = four.start()
    # On all nodes at once: they take turns, as who asks waits for the answers of the others.
    commands = [
        [sys.executable, "-m", "holdfast", "stacks", "--json", str(four.directory(each))] for each in four.agents
    ]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        dumps = [json.loads(each.communicate(timeout=TEST_MAX_S)[0]) for each in asking]
    finally:
        for each in asking:
            each.kill()
            each.wait()
    workers = {life.rank: (life.host, life.pid) for life in world}
    for dump in dumps:
        assert dump["missing"] == {}
        assert {int(rank): (stacks["host"], stacks["pid"]) for rank, stacks in dump["ranks"].items()} == workers
    assert not any(life.has_ended for life in world)
    four.expect_success(four.agents)


# Nodes


@on_embedded
def test_a_node_that_fails_again_and_again_is_left_out(run):
    three = run("2:3", "--max-restarts=5")
    world = three.start()
    for restart in (1, 2):
        os.kill(three.worker(2).pid, signal.SIGKILL)
        world = three.wait_for_world(6, after=world)
        assert {life.restart_count for life in world} == {restart}
    os.kill(three.worker(2).pid, signal.SIGKILL)
    smaller = three.wait_for_world(4, after=world)
    assert {life.node for life in smaller} == {"node1", "node2"}
    three.expect_success(three.agents)
    for agent in three.agents[:2]:
        assert [verdict["cause"]["kind"] for verdict in three.told(agent, "verdict")] == ["killed"] * 3


@on_embedded
def test_the_loss_of_a_node_costs_no_restart(run):
    four = run("3:4", "--max-restarts=0")
    world = four.start()
    lost = four.agents[BEHIND]
    lost.kill()
    smaller = four.wait_for_world(6, after=world)
    assert {life.restart_count for life in smaller} == {0}
    others = [agent for agent in four.agents if agent is not lost]
    four.expect_success(others)
    assert [four.told(agent, "verdict") for agent in others] == [[], [], []]
