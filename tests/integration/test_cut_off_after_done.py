"""A node whose workers have succeeded, and that has said so, does not fail because it cannot read the job's end."""

from __future__ import annotations

import signal

import pytest

pytestmark = [pytest.mark.root, pytest.mark.parametrize("place_name", ["embedded"], indirect=True)]

DONE = "the workers of this node are done; waiting for the other nodes"
"""What an agent says when the store has its word."""

UNREAD = "the workers of this node are done, and that is recorded; the end of the job could not be read"


def finish(job, *nodes):
    job.tell(job.alive(*nodes), "exit 0")


@pytest.mark.parametrize("is_mended", [True, False], ids=["mended", "never mended"])
def test_a_node_that_is_cut_off_after_it_was_done_has_succeeded(job, is_mended):
    """The node that serves the store goes when all others are gone, and a node that is cut off counts as that."""
    job = job("2:2", "--rdzv-conf=last_call_timeout=1,join_timeout=10")
    host, cut = job.nodes
    job.start(host, cut)
    job.wait_for_world(4)
    finish(job, cut)
    job.wait_for_words(job.agent(cut), DONE)
    job.network.cut(cut)
    finish(job, host)
    assert job.wait_for_exit(job.agent(host)) == [0]
    if is_mended:
        job.network.mend(cut)
    assert job.wait_for_exit(job.agent(cut)) == [0]
    assert UNREAD in job.agent(cut).stderr()


def test_when_the_store_is_lost_only_those_fail_that_were_not_done(job):
    job = job("3:3")
    host, done, busy = job.nodes
    job.start(host)
    job.start(done, busy)
    job.wait_for_world(6)
    finish(job, done)
    job.wait_for_words(job.agent(done), DONE)
    job.agent(host).kill(signal.SIGKILL)
    assert job.wait_for_exit(job.agent(done), job.agent(busy)) == [0, 1]
    assert UNREAD in job.agent(done).stderr()
    assert "was lost with the node that served it" in job.agent(busy).stderr()


def test_a_node_that_is_done_is_needed_again_when_another_fails_and_then_loses_the_store(job):
    """It knows that its word no longer counts."""
    job = job("2:2")
    host, done = job.nodes
    job.start(host, done)
    job.wait_for_world(4)
    finish(job, done)
    job.wait_for_words(job.agent(done), DONE)
    first = list(job.lives)
    job.tell(job.alive(host)[:1], "exit 3")
    job.wait_for_world(4, after=first)
    job.agent(host).kill(signal.SIGKILL)
    assert job.wait_for_exit(job.agent(done)) == [1]
    assert UNREAD not in job.agent(done).stderr()
