"""The children of a process, and signals to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from liveness import exists, status

from holdfast import procfs
from holdfast.processes.children import children, end_sessions, is_child, signal_group


@pytest.fixture
def start():
    """Starts processes of which nothing is left after the test."""
    started = []

    def start_one(*command, **options):
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, **options))
        return started[-1]

    yield start_one
    for process in started:
        if process.poll() is None and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()


def test_children_are_those_that_live_and_zombies(start):
    before = set(children())
    alive, ended = start("sleep", "1000"), start("true")
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert set(children()) - before == {alive.pid, ended.pid}
    ended.wait()
    assert set(children()) - before == {alive.pid}


def test_grandchildren_are_none(start):
    parent = start("sh", "-c", "sleep 1000 & echo $!; wait", start_new_session=True)
    grandchild = int(parent.stdout.readline())
    assert parent.pid in children()
    assert grandchild not in children()
    os.killpg(parent.pid, signal.SIGKILL)


def test_a_kernel_that_lists_no_children_has_them_searched_for(start, monkeypatch):
    def missing(pid, thread):
        raise FileNotFoundError

    child = start("sleep", "1000")
    known = set(children())
    monkeypatch.setattr(procfs, "children", missing)
    assert child.pid in children()
    assert set(children()) == known


def test_the_kernel_knows_who_is_a_child(start):
    child = start("true")
    assert is_child(child.pid)
    assert is_child(child.pid), "it was not reaped"
    child.wait()
    assert not is_child(child.pid)
    assert not is_child(os.getpid())


def test_all_children_are_ended_and_reaped_with_those_that_come_meanwhile():
    """The grandchild becomes a child when its parent is killed."""
    program = """
import os, signal
from holdfast.processes.children import end_children
from holdfast.processes.prctl import adopt_orphans
adopt_orphans()
told, tell = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.alarm(120)  # if the test fails
        os.write(tell, b"%d\\n" % os.getpid())
        signal.pause()
data = b""
while data.count(b"\\n") < 6:
    data += os.read(told, 1000)
end_children()
try:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
except ChildProcessError:
    print(data.decode())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    pids = [int(pid) for pid in ran.stdout.split()]
    assert len(set(pids)) == 6
    assert [pid for pid in pids if exists(pid)] == []


ACTS = """
import os, signal
def act(signum, frame):
    os.write(1, b"acted\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, act)
{then}
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""
"""Not a shell: one that is stopped while it starts a program is in an uninterruptible wait, and never reported."""


def test_a_group_gets_the_signal_with_its_leader(start):
    leader = start(sys.executable, "-c", ACTS.format(then="os.fork()"), start_new_session=True)
    assert leader.stdout.readline() + leader.stdout.readline() == b"ready\nready\n"
    signal_group(leader.pid, signal.SIGTERM)
    assert leader.stdout.read() == b"acted\nacted\n"


def test_a_stopped_process_acts_on_the_signal(start):
    process = start(sys.executable, "-c", ACTS.format(then=""), start_new_session=True)
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    signal_group(process.pid, signal.SIGTERM)
    assert process.stdout.read() == b"acted\n"


def test_a_process_that_leads_no_group_yet_gets_the_signal_alone(start):
    process = start("sleep", "1000")
    signal_group(process.pid, signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM


def test_a_process_that_was_reaped_is_not_found(start):
    process = start("true", start_new_session=True)
    process.wait()
    with pytest.raises(ProcessLookupError):
        signal_group(process.pid, signal.SIGTERM)


def is_alive(pid):
    try:
        return not status(pid, "State").startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_all_groups_of_a_session_are_killed_and_no_other_session(start):
    program = """
import os, signal
for begin in (os.setpgrp, os.setsid):
    told, tell = os.pipe()
    if os.fork() == 0:
        begin()
        os.write(tell, b"begun")
        print(os.getpid(), flush=True)
        signal.pause()
    os.read(told, 100)
signal.pause()
"""
    leader = start(sys.executable, "-c", program, start_new_session=True)
    pids = [int(leader.stdout.readline()), int(leader.stdout.readline())]
    try:
        member, other = sorted(pids, key=lambda pid: os.getsid(pid) == pid)
        assert (os.getpgid(member), os.getsid(member)) == (member, leader.pid)
        assert end_sessions({leader.pid}, 60) == ()
        assert leader.wait(60) == -signal.SIGKILL
        assert not is_alive(member)
        assert is_alive(other)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_no_sessions_are_no_work(start):
    process = start("sleep", "1000")
    assert end_sessions((), 60) == ()
    assert process.poll() is None
