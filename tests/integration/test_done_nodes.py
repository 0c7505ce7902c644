"""A node whose workers are done waits for the others, and still says so to whoever asks where the workers are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.root, pytest.mark.parametrize("place_name", ["embedded"], indirect=True)]

DONE = "the workers of this node are done; waiting for the other nodes"
"""What an agent says when the store has its word."""

ASKED_MAX_S = 120
"""More than `holdfast stacks` waits for an answer, so that it says itself that there was none."""

HANG_TIMEOUT_S = 3


def start(job, tmp_path):
    """Two nodes, of which one is done. Returns the agents of that one and of the other."""
    busy, done = job.nodes
    for node in job.nodes:
        job.start(node, flags=[f"--log-dir={tmp_path / 'logs' / node.hostname}"])
    world = job.wait_for_world(4)
    job.tell(job.alive(done), "exit 0")
    job.wait_for_words(job.agent(done), DONE)
    ended = sorted(life.rank for life in world if life.host == done.hostname)
    return job.agent(done), job.agent(busy), ended


def directory(tmp_path, agent):
    (found,) = (tmp_path / "logs" / agent.node.hostname).iterdir()
    return found


def stacks(tmp_path, agent, *flags):
    command = [sys.executable, "-m", "holdfast", "stacks", *flags, str(directory(tmp_path, agent))]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=ASKED_MAX_S, check=False)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def test_a_person_may_ask_on_a_node_that_is_done_and_on_one_that_is_not(job, tmp_path):
    job = job("2:2", "--max-restarts=0")
    done, busy, ended = start(job, tmp_path)
    for agent in (done, busy, done):
        dump = json.loads(stacks(tmp_path, agent, "--json"))
        assert (dump["missing"], dump["ended"]) == ({}, ended)
        assert sorted({0, 1, 2, 3} - set(ended)) == sorted(map(int, dump["ranks"]))
    assert f"ended   ranks {ended[0]}-{ended[1]}\n" in stacks(tmp_path, done)
    job.tell(job.alive(), "exit 0")
    assert job.wait_for_exit(done, busy) == [0, 0]


def test_a_hang_is_judged_with_the_word_of_the_node_that_is_done(job, tmp_path):
    job = job("2:2", "--max-restarts=0", f"--hang-timeout={HANG_TIMEOUT_S}")
    done, busy, _ = start(job, tmp_path)
    assert job.wait_for_exit(done, busy) == [1, 1]
    (kept,) = (directory(tmp_path, busy) / "stacks").glob("hang-*.json")
    assert json.loads(kept.read_text())["missing"] == {}
    for agent in (done, busy):
        assert "nothing is known of" not in agent.stderr()
        assert "made no progress and was stopped" in agent.stderr()


def test_the_store_of_a_node_that_is_done_answers_workers_that_come_later(job):
    """Nobody had used the store, so it had not been started, when the workers of its node were done."""
    job = job("2:2", "--max-restarts=0")
    agents = job.start(*job.nodes)
    first, _, late, _ = job.wait_for_world(4)
    done = next(node for node in job.nodes if node.hostname == first.node)
    job.tell(job.alive(done), "exit 0")
    job.wait_for_words(job.agent(done), DONE)
    job.tell([late], "ask-store")
    job.wait_until(lambda: late.heard("done"), "an answer of the store")
    job.tell(job.alive(), "exit 0")
    assert job.wait_for_exit(*agents) == [0, 0]
