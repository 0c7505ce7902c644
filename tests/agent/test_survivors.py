"""Where the workers were that are stopped because another one failed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from holdfast.agent import WorkerState, survivors
from holdfast.agent.timers import TORCHELASTIC_ENABLE_FILE_TIMER
from holdfast.agent.uninterruptible import UninterruptibleWatch
from holdfast.errors.kind import FailureKind

READY = """\
import os, signal, sys, time
ready = sys.argv[1]
rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
def wait_for_the_others():
    with open(ready, "rb", buffering=0) as file:
        for _ in range(last):
            file.read(1)
def load():
    with open(ready, "wb", buffering=0) as file:
        file.write(b".")
    while True:
        time.sleep(600)
def save():
    load()
"""
"""Rank 0 goes on once all others are in `load`."""

LOAD_LINE = 1 + READY.splitlines().index("        time.sleep(600)")


@pytest.fixture
def run(agent_of, tmp_path, monkeypatch):
    """Runs a program, after READY, with several workers. The agent, its result and the program's path."""
    monkeypatch.setattr(survivors, "ASK_MAX_S", 30.0)  # the machine may be busy

    def start(code, *, workers=3, command=None, **options):
        os.mkfifo(tmp_path / "ready")
        held_open = os.open(tmp_path / "ready", os.O_RDWR)  # so that no reader sees an end between two writers
        script = tmp_path / "train.py"
        script.write_text(READY + code)
        words = command or [sys.executable, str(script), str(tmp_path / "ready")]
        agent = agent_of(entrypoint=words[0], args=tuple(words[1:]), local_world_size=workers, **options)
        try:
            return agent, agent.run(), script
        finally:
            os.close(held_open)

    return start


def told(agent, name):
    lines = Path(agent._event_log_path()).read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event["metadata"]["details"] for event in events if event["name"] == f"holdfast.{name}"]


FAILS = """
if rank == 0:
    wait_for_the_others()
    raise {error}
load() if rank < last else save()
"""
AN_ERROR = 'ValueError("loss is nan")'
A_TIMEOUT = 'RuntimeError("[gloo/unbound_buffer.cc:78] Timed out waiting 1000ms for recv operation to complete")'


def test_a_failure_tells_where_the_others_were(run):
    agent, result, script = run(FAILS.format(error=AN_ERROR), workers=4)
    ((rank, failure),) = result.failures.items()
    assert (rank, failure.kind) == (0, FailureKind.EXCEPTION)
    place = f"{script}:{LOAD_LINE} in load"
    assert failure.survivors == (f"rank 3: {place}", f"ranks 1-2: {place}")
    assert failure.message.rstrip().endswith("ValueError: loss is nan")
    (stacks,) = told(agent, "stacks")
    assert (stacks["attempt"], stacks["where"]) == (1, list(failure.survivors))
    kept = Path(agent._event_log_path()).parent / stacks["file"]
    assert "in save" in kept.read_text()


def test_who_only_waited_for_a_peer_says_who_was_elsewhere(run):
    _, result, script = run(FAILS.format(error=A_TIMEOUT), workers=2)
    failure = result.failures[0]
    assert failure.kind is FailureKind.COMMUNICATION
    assert failure.message.splitlines()[-1] == (
        f"rank 1 was at {script}:{LOAD_LINE} in load, not in a collective: rank 0 may have waited for it"
    )


def test_they_are_asked_before_they_are_stopped(run, tmp_path):
    code = """
def end(*_):
    with open(os.environ["HOLDFAST_WORKER_PAGE"] + ".stacks") as file, open(sys.argv[1] + ".seen", "w") as seen:
        seen.write(file.read())
    os._exit(0)
if rank == 0:
    wait_for_the_others()
    os._exit(3)
signal.signal(signal.SIGTERM, end)
load()
"""
    run(code, workers=2)
    assert "in load" in (tmp_path / "ready.seen").read_text()


def test_a_program_that_is_not_python_is_described(run, tmp_path):
    ready = tmp_path / "ready"
    program = f'if [ "$RANK" = 0 ]; then head -c 1 {ready}; exit 3; fi; printf . >{ready}; exec sleep 600'
    command = ["sh", "-c", program]
    _, result, _ = run("", workers=2, command=command)
    (line,) = result.failures[0].survivors
    assert line.startswith("rank 1: no Python stack: ")


def test_one_that_does_not_answer_is_not_waited_for_for_long(run, monkeypatch):
    monkeypatch.setattr(survivors, "ASK_MAX_S", 0.02)
    code = """
if rank == 0:
    wait_for_the_others()
    os._exit(3)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 12])
load()
"""
    _, result, _ = run(code, workers=2)
    (line,) = result.failures[0].survivors
    assert line.startswith("rank 1: no answer within 20 ms: ")


def test_every_attempt_has_its_own(run):
    code = """
if rank == 0:
    wait_for_the_others()
    raise ValueError(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}")
load() if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else save()
"""
    agent, result, _ = run(code, workers=2, max_restarts=1, restart_policy="always")
    first, second = told(agent, "stacks")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert list(result.failures[0].survivors) == second["where"]
    texts = [(Path(agent._event_log_path()).parent / each["file"]).read_text() for each in (first, second)]
    assert ["in save" in text for text in texts] == [False, True]


def test_nobody_is_asked_where_all_have_failed_or_succeeded(run):
    agent, result, _ = run("if rank == 0:\n    sys.exit(3)\n", workers=1)
    assert result.failures[0].survivors == ()
    assert told(agent, "stacks") == []


def test_whom_the_watchdog_ends_was_asked_before(run, monkeypatch):
    monkeypatch.setenv(TORCHELASTIC_ENABLE_FILE_TIMER, "1")
    code = """
if rank == 0:
    from holdfast.watchdog import FileTimerClient, configure, expires
    wait_for_the_others()
    configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    def step():
        with expires(after=0.1):
            while True:
                time.sleep(600)
    step()
load()
"""
    _, result, script = run(code, workers=2)
    failure = result.failures[0]
    assert failure.kind is FailureKind.TIMEOUT
    assert failure.where.endswith("in step")
    assert failure.survivors == (f"rank 1: {script}:{LOAD_LINE} in load",)


def test_workers_that_are_not_well_are_asked_before_they_are_stopped(run, tmp_path, monkeypatch):
    all_load = tmp_path / "ready.all"
    monkeypatch.setattr(UninterruptibleWatch, "look", lambda *_: 1 if all_load.exists() else None)
    code = """
if rank == 0:
    wait_for_the_others()
    open(ready + ".all", "w").close()
load()
"""
    agent, result, _ = run(code, workers=2, agent={"uninterruptible_state_timeout": 0.2})
    assert result.state is WorkerState.FAILED
    (stacks,) = told(agent, "stacks")
    assert "stuck in the kernel" in stacks["reason"]
    assert any(line.startswith("rank") and line.endswith("in load") for line in stacks["where"])


def test_the_summary_shows_where_the_others_were():
    from holdfast.errors.failure import ProcessFailure
    from holdfast.errors.summary import summarize

    failure = ProcessFailure(0, 4242, 3, "")
    failure.survivors = ("rank 3: /srv/save.py:3 in save", "ranks 1-2: /srv/load.py:3 in load")
    assert (
        "\n  others    : rank 3: /srv/save.py:3 in save\n              ranks 1-2: /srv/load.py:3 in load\n"
        in summarize("train.py", {0: failure})
    )


def test_a_worker_whose_wait_the_question_ends_has_not_failed(run):
    code = """
if rank == 0:
    wait_for_the_others()
    raise RuntimeError("[gloo] Timed out waiting 1000ms for recv operation to complete")
def wait():
    import ctypes
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(ready, "wb", buffering=0) as file:
        file.write(b".")
    ctypes.CDLL(None).poll(None, 0, -1)
    raise ValueError("the wait was to last for ever")
wait()
"""
    _, result, _ = run(code, workers=2)
    assert list(result.failures) == [0]
    assert list(result.terminated) == [1]
    (line,) = result.failures[0].survivors
    assert line.endswith("in wait")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have no such system call")
def test_a_worker_that_waits_for_a_signal_does_not_get_one_before_it_is_stopped(run):
    code = """
if rank == 0:
    import select
    wait_for_the_others()
    while "sys_pause" not in open(f"/proc/{open(ready + '.pid').read()}/wchan").read():
        select.select([], [], [], 0.01)
    os._exit(3)
with open(ready + ".pid", "w") as file:
    file.write(str(os.getpid()))
with open(ready, "wb", buffering=0) as file:
    file.write(b".")
signal.pause()
os._exit(0)
"""
    _, result, _ = run(code, workers=2)
    assert result.terminated == {1: -15}
    (line,) = result.failures[0].survivors
    assert "sys_pause" in line
