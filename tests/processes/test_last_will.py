"""What a keeper does for an agent that was killed, and when it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import functions
import pytest
from liveness import wait_for_end

from holdfast.processes.launch import LastWill

EXECUTOR = """
import os, sys
with open(int(sys.argv[2])) as file:
    content = file.read()
streams = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
pids = content.split()
alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, f"will of {len(pids)} alive {alive} streams {streams}\\n".encode())
"""

PARENT = """
import os, sys, threading, time
sys.path.insert(0, {support!r})
import functions
from signpost import tell
from holdfast.processes import DefaultLogsSpecs, start_processes
from holdfast.processes.launch import LastWill
if {threads}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
fd = os.memfd_create("the-last-will")
def leave_will(context):
    context.will = LastWill([sys.executable, "-I", "-c", {executor!r}, {post!r}], fd)
context = start_processes(
    "set", functions.start_family, {{0: ({post!r}, {how!r}), 1: ({post!r}, {how!r})}}, {{0: {{}}, 1: {{}}}},
    DefaultLogsSpecs(log_dir="/dev/null"), start_method={method!r}, before_start=leave_will)
pids = sys.stdin.readline()
os.pwrite(fd, pids.encode(), 0)
tell({post!r}, "written")
{then}
"""


@pytest.fixture
def start_parent(post):
    """Starts a program that starts a set and leaves a will; returns it, its keeper and all processes of the set."""
    programs = []

    def start(how="daemon", method="spawn", *, threads=False, then="context.wait()"):
        source = PARENT.format(
            support=os.path.dirname(functions.__file__),
            post=post.path,
            executor=EXECUTOR,
            how=how,
            method=method,
            threads=threads,
            then=then,
        )
        program = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, text=True)
        programs.append(program)
        pids = post.pids(4)
        program.stdin.write(" ".join(map(str, pids)) + "\n")
        program.stdin.flush()
        assert post.line() == "written"
        with open(f"/proc/{program.pid}/task/{program.pid}/children") as file:
            keepers = [int(pid) for pid in file.read().split() if _comm(pid) == "holdfast-keeper"]
        return program, keepers[0], pids

    yield start
    for program in programs:
        program.kill()
        program.communicate()


def _comm(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("threads", [False, True], ids=["copy", "fresh"])
def test_it_is_carried_out_when_nothing_is_left_of_the_set(start_parent, post, method, threads):
    program, keeper, pids = start_parent(method=method, threads=threads)
    program.kill()
    nowhere = [os.devnull] * 3
    assert post.line() == f"will of 4 alive [] streams {nowhere}"
    assert wait_for_end([keeper, *pids]) == []


def test_an_agent_that_ends_in_order_leaves_none(start_parent, post):
    program, keeper, pids = start_parent(then="context.close()")
    assert program.wait(60) == 0
    assert wait_for_end([keeper, *pids]) == []
    assert is_silent(post)


def test_an_agent_that_lives_and_lets_go_of_the_set_leaves_none(start_parent, post):
    """It may have started other workers under the same lease."""
    program, keeper, pids = start_parent(then="os.close(context._keeper._commands); sys.stdin.readline(); os._exit(0)")
    assert wait_for_end([*pids, keeper]) == []
    assert program.poll() is None
    assert is_silent(post)
    program.communicate("go\n", timeout=60)
    assert is_silent(post)


def test_a_killed_keeper_carries_out_nothing(start_parent, post):
    program, keeper, pids = start_parent(how="child")
    os.kill(keeper, signal.SIGSTOP)
    program.kill()
    program.wait(60)
    os.kill(keeper, signal.SIGKILL)
    assert wait_for_end([keeper]) == []
    for pid in pids:  # the workers are gone, and nobody has looked for their children
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert is_silent(post)


@pytest.mark.usefixtures("image", "nothing_left")
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver", None])
def test_workers_do_not_have_it(start, post, method):
    fd = os.memfd_create("the-last-will")

    def leave_will(context):
        context.will = LastWill([sys.executable], fd)

    code = f"import sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import functions; "
    command = (sys.executable, [("-c", f"{code}functions.tell_files({post.path!r}, 'last-will')")])
    entrypoint, args = command if method is None else (functions.tell_files, [(post.path, "last-will")])
    options = {} if method is None else {"start_method": method}
    context = start(entrypoint, args, before_start=leave_will, **options)
    assert post.line() == "0 files"
    assert not context.wait().is_failed()
    os.close(fd)


def is_silent(post):
    try:
        os.read(post._fd, 1)
    except BlockingIOError:
        return True
    return False
