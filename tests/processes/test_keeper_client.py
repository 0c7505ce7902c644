"""A keeper that somebody has stopped holds up neither the agent nor the fence."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time

import pytest
from freezer_cgroup import FreezerGroup
from liveness import status, wait_for_end

from holdfast.errors.tree import InfrastructureError
from holdfast.processes import DefaultLogsSpecs, start_processes
from holdfast.processes.keeper_client import KeeperClient, LostTemplateError
from holdfast.processes.launch import Launch

pytestmark = pytest.mark.usefixtures("image", "nothing_left")

MANY_FENCES = 20_000
"""More than a pipe would hold."""

FAMILY = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
with open(sys.argv[1], "w") as post:
    post.write(f"{os.getpid()}\\n")
while True:
    signal.pause()
"""


@pytest.fixture
def stopped(start, post):
    """A set of one worker with a relative in a session of its own, whose keeper is stopped; and their identifiers."""
    context = start(sys.executable, [("-c", FAMILY, post.path)], shutdown_timeout=1000)
    pids = post.pids(2)
    keeper = context._keeper.keeper_pid
    os.kill(keeper, signal.SIGSTOP)
    while not status(keeper, "State").startswith("T"):
        os.sched_yield()
    return context, pids


def test_a_stopped_keeper_blocks_no_fence(stopped):
    context, pids = stopped
    for _ in range(MANY_FENCES):
        context.fence(time.monotonic() + 1000)
    assert context.wait(0) is None
    context.close(timeout=0)
    assert not context.is_fenced
    assert wait_for_end(pids) == []


def test_a_stopped_keeper_is_continued_when_the_fence_has_passed(stopped):
    context, pids = stopped
    context.fence(time.monotonic() + 1000)
    context.fence(time.monotonic())
    assert wait_for_end(pids) == []
    result = context.wait()
    assert context.is_fenced
    assert not context._keeper.keeper_died
    assert not result.is_failed()


def test_a_stopped_keeper_is_continued_while_the_fence_is_renewed(stopped):
    """Or nobody would hear of the end of a worker, however often the lease is renewed."""
    context, pids = stopped
    context.fence(time.monotonic() + 0.2)
    context.fence(time.monotonic() + 1000)
    (worker,) = context.pids().values()
    os.kill(worker, signal.SIGKILL)
    result = context.wait(60)
    assert result is not None
    assert result.failures[0].exitcode == -signal.SIGKILL
    assert not context.is_fenced
    context.close(timeout=0)
    assert wait_for_end(pids) == []


def test_a_keeper_that_cannot_be_continued_is_killed_and_the_workers_with_it(stopped, monkeypatch):
    context, pids = stopped
    monkeypatch.setattr(KeeperClient, "_continue_keeper", lambda _: None)
    context.fence(time.monotonic())
    (worker,) = context.pids().values()
    assert wait_for_end([worker]) == []
    result = context.wait()
    assert context.is_fenced
    assert context._keeper.keeper_died
    assert result.terminated == {0: -signal.SIGKILL}
    # The promise ends here: nobody is left who knows a process that left the worker's session.
    (relative,) = (pid for pid in pids if pid != worker)
    os.kill(relative, signal.SIGKILL)


def test_no_signal_is_sent_to_the_keeper_of_a_set_that_another_thread_has_closed(stopped, monkeypatch):
    """Its pid may be another process's by then, and the number of its descriptor another file's."""
    context, pids = stopped
    keeper = context._keeper
    sent = []
    hear_until = keeper._hear_until

    def close_meanwhile(*args):
        context.close(timeout=0)
        monkeypatch.setattr(keeper, "_hear_until", hear_until)
        monkeypatch.setattr(KeeperClient, "_signal_keeper", lambda _, signum: sent.append(signum))
        return False

    monkeypatch.setattr(keeper, "_hear_until", close_meanwhile)
    keeper.enforce_fence()
    assert sent == []
    assert wait_for_end(pids) == []


def test_a_fence_that_was_renewed_while_the_keeper_was_stopped_holds(stopped):
    context, pids = stopped
    context.fence(time.monotonic() + 0.2)
    context.fence(time.monotonic() + 1000)
    keeper = context._keeper.keeper_pid
    os.kill(keeper, signal.SIGCONT)
    while status(keeper, "State").startswith("T"):
        os.sched_yield()
    assert context.wait(0.5) is None
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not context.is_fenced


def test_reports_that_the_guard_has_read_wake_up_who_waits_for_the_set(start, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    context = start("bash", [("-c", f"read < {gate}"), ("-c", "exec sleep 1000")])
    keeper = context._keeper
    assert keeper.exits == {}
    with select.epoll() as waiting:
        waiting.register(context, select.EPOLLIN)
        gate.write_text("exit\n")
        assert keeper._hear_until(lambda: 0 in keeper.exits, time.monotonic() + 60)
        assert waiting.poll(60)


def killed_at_once(*_):
    """A keeper that is killed before it does anything."""
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return pid


def test_a_keeper_that_is_killed_as_it_begins_is_a_failure_of_its_workers(monkeypatch):
    """And not of the machine: the next attempt may succeed."""
    monkeypatch.setattr("holdfast.processes.keeper_client.start_keeper", killed_at_once)
    context = start_processes("set", "true", {0: (), 1: ()}, {0: {}, 1: {}}, DefaultLogsSpecs())
    result = context.wait()
    assert context.pids() == {}
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {0: -9, 1: -9}
    assert "which was killed from outside" in result.failures[0].message


def test_a_killed_keeper_leaves_no_process_of_a_workers_session(post):
    """A job of a shell has a process group of its own."""
    script = f"set -m; sleep 1000 & echo $! > {post.path}; exec sleep 1000"
    context = start_processes("set", "bash", {0: ("-c", script)}, {0: {}}, DefaultLogsSpecs())
    try:
        pids = post.pids(1)
        os.kill(context._keeper.keeper_pid, signal.SIGKILL)
        assert context.wait().is_failed()
        assert wait_for_end(pids) == []
    finally:
        context.close(timeout=0)


class LostTemplate:
    """Forks a process that has the keeper's ends, and does not say so. `live` is what that process does."""

    def __init__(self, live):
        self._live = live
        self.pid = 0

    def is_ready(self):
        return True

    def fork_keeper(self, launches, ends, fds, will):
        commands, _, _ = ends
        self.pid = os.fork()
        if self.pid == 0:
            os.closerange(3, min(ends))
            for fd in set(range(min(ends), 256)) - set(ends):
                with contextlib.suppress(OSError):
                    os.close(fd)
            self._live(commands)
            os._exit(0)
        raise LostTemplateError


def test_a_set_that_a_lost_template_may_have_forked_is_gone_before_another_can_start(tmp_path):
    ended = tmp_path / "ended"

    def live(commands):
        assert os.read(commands, 1) == b"", "the agent lets go of it"
        ended.touch()

    template = LostTemplate(live)
    with pytest.raises(LostTemplateError):
        KeeperClient([Launch(0, ["true"], {}, "", "", [])], template=template)
    assert ended.exists()
    os.waitpid(template.pid, 0)


def test_a_set_that_a_lost_template_has_forked_and_that_does_not_end_is_an_error(monkeypatch):
    monkeypatch.setattr("holdfast.processes.keeper_client.LOST_WAIT_S", 0.05)
    template = LostTemplate(lambda _: signal.pause())
    try:
        with pytest.raises(InfrastructureError, match="no other set may run beside it"):
            KeeperClient([Launch(0, ["true"], {}, "", "", [])], template=template)
    finally:
        os.kill(template.pid, signal.SIGKILL)
        os.waitpid(template.pid, 0)


@pytest.fixture
def frozen():
    """A set of one worker that cannot end, whatever is sent to it, until its group is thawed."""
    with FreezerGroup() as group:
        context = start_processes("set", "sleep", {0: ("1000",)}, {0: {}}, DefaultLogsSpecs())
        try:
            group.freeze(context.pids()[0])
            yield context, group
        finally:
            group.thaw()
            context.close(timeout=0)


@pytest.mark.root
def test_a_set_whose_keeper_was_killed_is_not_over_before_its_workers_are(frozen):
    context, group = frozen
    worker = os.pidfd_open(context.pids()[0])
    thawing = threading.Timer(0.5, group.thaw)  # a set that is over before has failed the test
    thawing.start()
    try:
        os.kill(context._keeper.keeper_pid, signal.SIGKILL)
        assert context.wait().is_failed()
        has_ended, _, _ = select.select([worker], [], [], 0)
        assert has_ended
        assert context.stuck == ()
    finally:
        thawing.join()
        os.close(worker)


@pytest.mark.root
def test_workers_of_a_killed_keeper_that_do_not_end_are_named(frozen, monkeypatch, capfd):
    context, _ = frozen
    pid = context.pids()[0]
    monkeypatch.setattr("holdfast.processes.keeper_client.KILL_WAIT_S", 0.1)
    os.kill(context._keeper.keeper_pid, signal.SIGKILL)
    assert context.wait().is_failed()
    assert context.stuck == (pid,)
    context.close(timeout=0)
    assert f"SIGKILL did not end {pid}" in capfd.readouterr().err
