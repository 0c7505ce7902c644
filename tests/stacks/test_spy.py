"""A look from outside at processes that do not answer."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest
from liveness import status

from holdfast.stacks import spy as spying
from holdfast.stacks.parse import parse
from holdfast.stacks.spy import PY_SPY, REASON_MAX_CHARS, SPY_MAX_S, find_py_spy, spy

ENOUGH_S = 60.0

ASLEEP = """
    import time
    def train():
        tell(post, "ready")
        time.sleep(1000)
    train()
"""


@pytest.fixture
def asleep(start_worker, post):
    worker = start_worker(ASLEEP)
    post.line()
    return worker.pid


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Makes a shell script that is found in the place of py-spy."""

    def make(script):
        directory = tmp_path / "bin"
        directory.mkdir()
        path = directory / PY_SPY
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        return path

    return make


def test_py_spy_is_found_beside_the_interpreter_and_first_on_the_path(monkeypatch, stand_in):
    monkeypatch.setenv("PATH", "/nowhere:/bin:/usr/bin")
    assert find_py_spy() == os.path.join(os.path.dirname(sys.executable), PY_SPY)
    first = str(stand_in("true"))
    assert find_py_spy() == first


def test_a_process_is_seen_and_left_alone(asleep):
    stacks = parse(spy(asleep, ENOUGH_S))
    assert "train" in [frame.function for frame in stacks.main.frames]
    assert (stacks.source, stacks.state) == ("py-spy, because it did not answer", "")
    assert status(asleep, "State").startswith("S")


def test_a_process_that_has_ended_has_no_stacks():
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert spy(ended.pid, ENOUGH_S) == "", "not yet reaped"
    ended.wait()
    assert spy(ended.pid, ENOUGH_S) == ""


def test_a_stopped_process_is_never_paused_by_py_spy(asleep, stand_in):
    stand_in('echo "$@" >> "$0.log"; echo "Error: no" >&2; exit 1')
    os.kill(asleep, signal.SIGSTOP)
    os.waitid(os.P_PID, asleep, os.WSTOPPED | os.WNOWAIT)
    path = find_py_spy()
    text = spy(asleep, ENOUGH_S)
    with open(f"{path}.log") as file:
        assert file.read() == f"dump --full-filenames --nonblocking --pid {asleep}\n"
    assert parse(text).state.startswith("no Python stack: stopped by a signal")
    assert parse(text).source == "the kernel; py-spy: no"


def test_a_running_process_is_paused_if_there_is_no_other_way(asleep, stand_in):
    stand_in('case "$*" in *--nonblocking*) exit 1;; esac; echo "Thread 1 (idle): x"; echo "    f (/srv/a.py:1)"')
    assert [frame.function for frame in parse(spy(asleep, ENOUGH_S)).threads[0].frames] == ["f"]


def test_what_py_spy_complains_of_is_one_line_of_bounded_length(asleep, stand_in):
    stand_in("head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2; echo second >&2; exit 1")
    assert parse(spy(asleep, ENOUGH_S)).source == f"the kernel; py-spy: {'x' * REASON_MAX_CHARS}"


def test_a_py_spy_that_says_nothing_has_seen_no_threads(asleep, stand_in):
    stand_in("true")
    assert parse(spy(asleep, ENOUGH_S)).source == "the kernel; py-spy: no Python threads"


def test_a_py_spy_that_takes_too_long_is_given_up(asleep, stand_in):
    stand_in("exec sleep 1000")
    assert parse(spy(asleep, 0.0)).source == "the kernel; py-spy took too long"


def test_all_attempts_at_a_process_have_one_limit(asleep, stand_in, monkeypatch):
    """The agent does nothing else meanwhile."""
    stand_in("exit 1")
    clock, limits = [0.0], []

    def run(*_, timeout, **__):
        limits.append(timeout)
        clock[0] += timeout / 2
        return subprocess.CompletedProcess((), 1, b"", b"")

    monkeypatch.setattr(spying.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(spying.subprocess, "run", run)
    spy(asleep, ENOUGH_S)
    assert limits == [SPY_MAX_S, SPY_MAX_S / 2]


def test_a_py_spy_that_cannot_be_run_is_named(asleep, stand_in):
    path = stand_in("")
    path.write_text("#!/no/such/interpreter\n")
    assert parse(spy(asleep, ENOUGH_S)).source == "the kernel; py-spy cannot be run: No such file or directory"


def test_words_of_a_command_line_are_no_threads(asleep, stand_in):
    stand_in('printf "Process 1: a program\\nThread-safe words\\n"')
    assert parse(spy(asleep, ENOUGH_S)).source == "the kernel; py-spy: no Python threads"
