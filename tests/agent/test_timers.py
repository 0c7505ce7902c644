"""The watchdog of an agent: it starts if the user wants it, and explains what it ended."""

from __future__ import annotations

import os
import select
import subprocess
import time

import pytest

from holdfast.agent.inspection import GLANCE_S, TIMEOUT_ANSWER_MAX_S
from holdfast.agent.timers import TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE, Timers
from holdfast.stacks.spy import SPY_MAX_S
from holdfast.watchdog import FileTimerRequest
from holdfast.watchdog.fifo_client import ROOM_WAIT_S


@pytest.fixture
def timers(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    recorded = []
    made = Timers(lambda: "run", lambda *what: recorded.append(what))
    made.recorded = recorded
    yield made
    made.close()
    assert os.listdir(tmp_path) == []


def test_the_pipe_is_read_more_often_than_a_full_one_is_waited_for():
    """A healthy worker would fail with a TimeoutError. Between two reads, the agent waits for one of these."""
    assert max(GLANCE_S, TIMEOUT_ANSWER_MAX_S + GLANCE_S, SPY_MAX_S) <= ROOM_WAIT_S / 2


def test_nothing_is_made_unless_the_user_wants_it(timers, monkeypatch):
    monkeypatch.delenv(TORCHELASTIC_ENABLE_FILE_TIMER, raising=False)
    envs = {0: {}}
    timers.begin(envs)
    assert envs == {0: {}}
    assert timers.wait_s() is None
    assert abs(timers.last_progress() - time.time()) < 60, "an agent that only waits is healthy"


def test_requests_can_be_read_without_ending_anyone(timers, monkeypatch):
    timers.read()
    monkeypatch.setenv(TORCHELASTIC_ENABLE_FILE_TIMER, "1")
    envs = {0: {}}
    timers.begin(envs)
    with subprocess.Popen(["sleep", "1000"]) as worker:
        request = FileTimerRequest(worker_pid=worker.pid, scope_id="step", expiration_time=time.time() - 1, signal=9)
        with open(envs[0][TORCHELASTIC_TIMER_FILE], "w") as pipe:
            pipe.write(request.to_json() + "\n")
        timers.read()
        poll = select.poll()
        timers.register(poll)
        assert poll.poll(0) == []
        assert timers.wait_s() == 0.0, "overdue workers are ended at the next look"
        assert worker.poll() is None
        worker.kill()


def test_a_worker_that_took_too_long_is_asked_ended_and_explained(timers, monkeypatch):
    monkeypatch.setenv(TORCHELASTIC_ENABLE_FILE_TIMER, "1")
    envs = {0: {}, 1: {}}
    timers.begin(envs)
    assert envs[0][TORCHELASTIC_TIMER_FILE] == envs[1][TORCHELASTIC_TIMER_FILE]
    worker = os.fork()
    if worker == 0:
        time.sleep(600)
        os._exit(0)
    try:
        request = FileTimerRequest(worker_pid=worker, scope_id="loading", expiration_time=time.time() - 1, signal=9)
        with open(envs[0][TORCHELASTIC_TIMER_FILE], "w") as pipe:
            pipe.write(request.to_json() + "\n")
        poll = select.poll()
        timers.register(poll)
        assert poll.poll(60_000)
        asked = []
        timers.look(asked.extend)
    finally:
        _, status = os.waitpid(worker, 0)
    assert asked == [worker]
    assert os.WTERMSIG(status) == 9
    assert timers.expired_in(worker) == "loading"
    assert timers.expired_in(os.getpid()) is None
    timers.begin(envs)
    assert timers.expired_in(worker) is None, "the next attempt begins anew"
