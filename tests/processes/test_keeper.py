"""The keeper: it starts what may be started, reaps what its workers leave, and passes signals on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import functions
import pytest
from liveness import exists, status


def test_signals_to_everybody_do_not_end_the_keeper(start, post):
    """As a service manager sends them: to each process of the job at once."""
    context = start("sh", [("-c", f"trap '' TERM HUP INT USR1; echo $$ > {post.path}; while :; do sleep 1000; done")])
    (pid,) = post.pids(1)
    keeper = int(status(pid, "PPid"))
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM):
        os.kill(keeper, signum)
    context.close(timeout=0)
    result = context.wait()
    assert result.terminated == {0: -signal.SIGKILL}


def test_orphans_are_reaped_while_the_set_runs(start, post):
    """Adopted processes must not stay as zombies for as long as the job takes."""
    script = (
        "import os, time\nfor _ in range(20):\n    child = os.fork()\n    if child == 0:\n"
        f"        if os.fork() == 0:\n            os._exit(0)\n        os._exit(0)\n    os.waitpid(child, 0)\n"
        f"import sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r})\n"
        f"import functions; functions.wait_for_signal({post.path!r})"
    )
    context = start(sys.executable, [("-c", script)])
    (worker,) = post.pids(1)
    keeper = status(worker, "PPid")
    # The worker's line came after the last of them was forked; they have ended, or are about to.
    deadline = time.monotonic() + 60
    while _other_children(keeper, worker) and time.monotonic() < deadline:
        os.sched_yield()
    assert _other_children(keeper, worker) == []
    context.close()


def _other_children(parent, but):
    with open(f"/proc/{parent}/task/{parent}/children") as file:
        return [pid for pid in map(int, file.read().split()) if pid != but]


def reporting(post):
    """A command for a shell: a program that tells which signal it got."""
    path = os.path.dirname(functions.__file__)
    script = f"import sys; sys.path.insert(0, '{path}'); import functions; functions.report_signal('{post.path}')"
    return f'{sys.executable} -c "{script}"'


def test_the_group_of_a_worker_gets_the_signal_with_it(start, post):
    """A child of a worker can end in its own way, as the worker itself can."""
    context = start("sh", [("-c", f"{reporting(post)} & wait; wait")])
    assert post.line().startswith("ready")
    context.close()
    assert post.line().startswith("SIGTERM")


def test_what_outlives_the_workers_gets_the_signal_and_a_grace(start, post):
    """A leftover in a session of its own handles SIGTERM, which comes when its worker is gone."""
    context = start("sh", [("-c", f"setsid {reporting(post)} & exec sleep 1000")])
    ready = post.line()
    context.close()
    assert post.line().startswith("SIGTERM")
    assert not exists(int(ready.split()[1]))


ENDS_WHILE_IT_STARTS = """
import os, select, signal
from holdfast.processes import DefaultLogsSpecs, SignalException, keeper, start_processes

agent, real, forked = os.getpid(), os.fork, []


def fork():
    pid = real()
    if pid and os.getpid() != agent and not forked:
        forked.append(pid)
        {end}
    return pid


os.fork = fork
script = ("-c", "echo started; exec sleep 1000")
many = range(8)
context = start_processes(
    "set", "bash", {{rank: script for rank in many}}, {{rank: {{}} for rank in many}}, DefaultLogsSpecs("/dev/null"))
context.wait()
"""
"""A program whose keeper, after its first fork, does something to its agent."""

KILLED = """os.kill(agent, signal.SIGKILL)
        while os.getppid() == agent:
            os.sched_yield()"""

STOPPED = """os.kill(agent, signal.SIGTERM)
        commands = keeper.sys._getframe(2).f_locals["self"]._commands
        select.select([commands], [], [], 60)"""


@pytest.mark.parametrize(("end", "code"), [(KILLED, -signal.SIGKILL), (STOPPED, 1)], ids=["killed", "stopped"])
def test_no_worker_starts_after_the_agent_has_ended_or_asked_for_a_stop(end, code):
    ran = subprocess.run(  # the output ends when no process is left that has it
        [sys.executable, "-c", ENDS_WHILE_IT_STARTS.format(end=end)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == code, ran.stderr
    assert ran.stdout.count("started") <= 1, ran.stdout
