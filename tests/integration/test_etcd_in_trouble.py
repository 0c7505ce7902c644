"""etcd runs out of space, or loses its data, while a job runs."""

from __future__ import annotations

import base64
import signal

import pytest
from job_nodes import restart_counts, succeed

pytestmark = [
    pytest.mark.root,
    pytest.mark.etcd,
    pytest.mark.parametrize("place_name", ["small etcd"], indirect=True),
]


# No space: leases are renewed, and no writes are taken


def ends_with_no_space(job, agents, world):
    """All agents end, and each says which alarm it is and what to do. Nothing else is left."""
    assert job.wait_for_exit(*agents) == [1] * len(agents), job.describe()
    for agent in agents:
        last_line = agent.stderr().splitlines()[-1]
        for words in ("NOSPACE", "etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm", "--quota-backend-bytes"):
            assert words in last_line, job.describe()
        assert "could not be reached" not in agent.stderr()
        assert "Traceback" not in agent.stderr()
    job.wait_for_end(world)
    job.check()


@pytest.mark.parametrize("victim", [0, 5], ids=["first", "last"])
def test_a_worker_that_dies_ends_the_job_on_every_node(job, victim):
    three = job("3")
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    three.place.cluster.fill()
    assert not any(life.has_ended for life in world)
    three.tell(world[victim : victim + 1], "exit 7")
    ends_with_no_space(three, agents, world)


def test_a_node_that_is_lost_ends_the_job_on_the_others(job):
    three = job("2:3")
    agents = three.start(*three.nodes)
    world = three.wait_for_world(6)
    three.place.cluster.fill()
    agents[2].kill(signal.SIGKILL)
    ends_with_no_space(three, agents[:2], world)


def test_a_job_that_cannot_start_says_why(job):
    two = job("2")
    two.place.cluster.fill()
    agents = two.start(*two.nodes)
    ends_with_no_space(two, agents, [])


def test_workers_that_are_done_when_nothing_can_be_written(job):
    two = job("2")
    agents = two.start(*two.nodes)
    world = two.wait_for_world(4)
    two.place.cluster.fill()
    two.tell_all("exit 0")
    ends_with_no_space(two, agents, world)


# Data that is lost


@pytest.mark.parametrize(
    ("token", "words"),
    [("", "etcd has lost data"), ("another", "belongs to the cluster")],
    ids=["wiped", "replaced"],
)
def test_an_etcd_that_starts_from_nothing_is_not_taken_for_the_jobs(job, token, words):
    two = job("2")
    agents = two.start(*two.nodes)
    world = two.wait_for_world(4)
    two.place.cluster.replace(0, token)
    assert two.wait_for_exit(*agents) == [1, 1], two.describe()
    for agent in agents:
        assert words in agent.stderr().splitlines()[-1], two.describe()
        assert "another --rdzv-id" in agent.stderr().splitlines()[-1]
    two.wait_for_end(world)
    assert len(two.lives) == 4
    two.check()


# Records that somebody deletes


def delete(cluster, prefix):
    """All keys that begin so, as ``etcdctl del --prefix`` does. Returns how many there were."""
    first, end = (base64.b64encode(text.encode()).decode() for text in (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)))
    answer = cluster.post(cluster.members[0], "kv/deleterange", {"key": first, "range_end": end})
    return int(answer.get("deleted", 0))


def test_who_deletes_one_run_by_a_prefix_splits_no_other(job):
    ten = job("2:4", run_id="job10")
    *early, one, other = ten.nodes
    agents = ten.start(*early)
    ten.wait_for_world(4)
    delete(ten.place.cluster, "/holdfast/runs/job1")
    agents += ten.start(one, other)
    assert restart_counts(ten.wait_for_world(8)) == {0}
    succeed(ten, agents)


def test_workers_stop_when_the_records_of_their_job_are_deleted(job):
    three = job("2:3")
    *early, late = three.nodes
    agents = three.start(*early)
    world = three.wait_for_world(4)
    assert delete(three.place.cluster, "/holdfast/runs/")
    three.wait_for_end(world)
    agents += three.start(late)
    assert restart_counts(three.wait_for_world(6)) == {0}
    succeed(three, agents)
