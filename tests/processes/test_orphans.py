"""Nothing is left: no worker, no grandchild, no daemon, after a close and after the death of the parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from multiprocessing import resource_tracker

import functions
import pytest
from functions import FAMILIES
from liveness import children, exists, status, wait_for_end

PARENT = """
import sys, os, threading
sys.path.insert(0, {support!r})
import functions
from signpost import tell
from holdfast.processes import DefaultLogsSpecs, start_processes
if {threads}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if not {pidfd}:
    del os.pidfd_open
context = start_processes(
    "set", functions.start_family, {{0: ({post!r}, {how!r}), 1: ({post!r}, {how!r})}}, {{0: {{}}, 1: {{}}}},
    DefaultLogsSpecs(log_dir="/dev/null"), start_method={method!r})
tell({post!r}, "parent")
{then}
"""


@pytest.fixture
def start_parent(post):
    """Starts a program that starts a set whose workers have families; returns it and all their processes."""
    programs, families = [], []

    def start(how, method="fork", *, threads=False, pidfd=True, then="context.wait()"):
        source = PARENT.format(
            support=os.path.dirname(functions.__file__),
            post=post.path,
            how=how,
            method=method,
            threads=threads,
            pidfd=pidfd,
            then=then,
        )
        program = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE)
        programs.append(program)
        lines = post.lines(5)  # two workers, two relatives, and the parent
        families.extend(int(line) for line in lines if line != "parent")
        return program, [int(line) for line in lines if line != "parent"]

    yield start
    for program in programs:
        program.kill()
        program.communicate()
    for pid in families:  # what a test that fails, or ends the keeper itself, has left
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", FAMILIES)
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_after_close_nothing_is_alive(start, post, how, method):
    resource_tracker.ensure_running()  # multiprocessing's, which the first spawn starts and all share
    before = children()
    context = start(functions.start_family, [(post.path, how)] * 2, start_method=method)
    pids = post.pids(4)
    assert len(set(pids)) == 4
    context.close()
    assert [pid for pid in pids if exists(pid)] == []
    assert children() == before


@pytest.mark.parametrize("how", FAMILIES)
def test_after_a_failure_nothing_is_alive(start, post, how):
    context = start(functions.start_family, [(post.path, how)] * 2, start_method="fork")
    pids = post.pids(4)
    os.kill(context.pids()[0], signal.SIGKILL)
    assert list(context.wait().failures) == [0]
    assert [pid for pid in pids if exists(pid)] == []


@pytest.mark.parametrize("how", ["session", "bare daemon"])
def test_after_success_nothing_is_alive(start, post, how):
    """A daemon that a worker left behind ends with the set, although every worker exited with 0."""
    detach = "os.fork() and os._exit(0); " if how == "bare daemon" else ""
    script = (
        f"import sys, subprocess; subprocess.Popen([sys.executable, '-c', "
        f'"import os; {detach}import sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); '
        f'import functions; functions.wait_for_signal({post.path!r})"], start_new_session=True)\n'
        f"sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import signpost; "
        f"signpost.tell({post.path!r}, 'worker 0')"
    )
    context = start(sys.executable, [("-c", script)])
    pids = [pid for pid in post.pids(2) if pid]
    assert context.wait().return_values == {0: None}
    assert len(pids) == 1
    assert not exists(pids[0])


@pytest.mark.parametrize("how", FAMILIES)
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_after_the_parent_was_killed_nothing_is_alive(start_parent, how, method):
    parent, pids = start_parent(how, method)
    assert len(set(pids)) == 4
    parent.kill()
    assert wait_for_end(pids) == []


@pytest.mark.parametrize("how", ["daemon", "bare daemon"])
@pytest.mark.parametrize(("threads", "pidfd"), [(True, True), (False, False), (True, False)])
def test_however_the_keeper_learns_of_the_death(start_parent, how, threads, pidfd):
    """In a fresh interpreter; and without pidfds, from the end of the command pipe."""
    parent, pids = start_parent(how, "spawn", threads=threads, pidfd=pidfd)
    parent.kill()
    assert wait_for_end(pids) == []


@pytest.mark.parametrize("then", ["sys.exit(0)", "raise ValueError", "os._exit(3)", "os.abort()"])
def test_after_the_parent_left_without_closing_nothing_is_alive(start_parent, then):
    parent, pids = start_parent("daemon", then=f"sys.stdin.readline(); {then}")
    parent.communicate(b"now\n", timeout=60)
    assert wait_for_end(pids) == []


def test_parent_and_keeper_killed_together(start_parent):
    """The kernel ends the workers of a dead keeper; the parent, stopped, cannot be the one that does."""
    parent, pids = start_parent("child")
    workers = [pid for pid in pids if os.getsid(pid) == pid]
    keeper = int(status(workers[0], "PPid"))
    os.kill(parent.pid, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    assert wait_for_end([keeper, *workers]) == []
    parent.kill()


@pytest.mark.parametrize("threads", [False, True], ids=["a copy", "a fresh interpreter"])
def test_a_keeper_that_was_stopped_goes_on_when_its_parent_is_killed(start_parent, threads):
    """The kernel continues it, and it ends the set as ever."""
    parent, pids = start_parent("daemon", "spawn", threads=threads)
    keeper = next(int(status(pid, "PPid")) for pid in pids if os.getsid(pid) == pid)
    os.kill(keeper, signal.SIGSTOP)
    parent.kill()
    assert wait_for_end([keeper, *pids]) == []


def test_a_stopped_worker_ends_with_its_parent(start_parent):
    parent, pids = start_parent("stopped")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    parent.kill()
    assert wait_for_end(pids) == []


def test_the_keeper_ends_too(start_parent):
    parent, pids = start_parent("child")
    keeper = next(int(status(pid, "PPid")) for pid in pids if os.getsid(pid) == pid)
    parent.kill()
    assert wait_for_end([keeper]) == []


def test_the_death_of_the_keeper_is_a_failure_of_the_infrastructure(start, post):
    context = start(functions.wait_for_signal, [(post.path,)] * 2, start_method="fork")
    pids = post.pids(2)
    keeper = int(status(pids[0], "PPid"))
    os.kill(keeper, signal.SIGKILL)
    result = context.wait()
    assert sorted(result.failures) == [0, 1]
    assert {failure.category for failure in result.failures.values()} == {"infrastructure"}
    assert str(keeper) in result.failures[0].message
    assert wait_for_end(pids) == []
