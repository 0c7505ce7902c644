"""Signs of life and the request to stop, between real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.agent.shared_memory import read_page, request_stop
from holdfast.worker.shared_memory import BEAT_NS, BEATS, FIFO_SUFFIX, LISTENS, STEP

PATIENCE_S = 60.0


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "worker.page")


@pytest.fixture
def run(path):
    """Runs a script as a worker with a page; it says "ready" and is told to go on by a line."""
    made = []

    def start(script, **environ):
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "HOLDFAST_WORKER_PAGE": path, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        made.append(process)
        return process

    yield start
    for process in made:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_heartbeats_are_seen_from_outside(run, path):
    before = time.monotonic_ns()
    worker = run("""
from holdfast import worker
for step in range(5):
    worker.heartbeat(step)
worker.heartbeat(step=7)
print("ready", flush=True)
input()
""")
    assert worker.stdout.readline() == "ready\n"
    numbers = read_page(path)
    assert (numbers[BEATS], numbers[STEP], numbers[LISTENS]) == (6, 7, 0)
    assert before < numbers[BEAT_NS] < time.monotonic_ns()


def test_a_program_that_asks_is_told(run, path):
    worker = run("""
from holdfast import worker
print(worker.stop_requested(), worker.stop_reason() == "", worker.time_left_s(), flush=True)
input()
print(worker.stop_requested(), worker.stop_reason(), 0 < worker.time_left_s() <= 60, flush=True)
""")
    assert worker.stdout.readline() == "False True inf\n"
    assert read_page(path)[LISTENS] == 1
    assert request_stop(path, "node9 wants in, é", time.monotonic_ns() + 60 * 10**9)
    worker.stdin.write("\n")
    assert worker.stdout.readline() == "True node9 wants in, é True\n"


def test_a_callback_is_called_without_asking(run, path):
    worker = run("""
from holdfast import worker
for name in ("first", "second"):
    worker.on_stop(lambda reason, name=name: print(name, reason, flush=True))
print("ready", flush=True)
input()
""")
    assert worker.stdout.readline() == "ready\n"
    assert read_page(path)[LISTENS] == 1
    assert request_stop(path, "drained", 1)
    pipe = os.open(path + FIFO_SUFFIX, os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, b"\n")
    os.close(pipe)
    assert {worker.stdout.readline(), worker.stdout.readline()} == {"first drained\n", "second drained\n"}


def test_a_callback_that_comes_late_is_called_at_once(run, path):
    worker = run("""
from holdfast import worker
worker.heartbeat()
print("ready", flush=True)
input()
worker.on_stop(lambda reason: print(reason, flush=True))
input()
""")
    assert worker.stdout.readline() == "ready\n"
    assert request_stop(path, "drained", 1)
    worker.stdin.write("\n")
    assert worker.stdout.readline() == "drained\n"


def test_a_request_that_came_before_the_page_is_found(run, path):
    """The program was still importing when the agent asked."""
    assert request_stop(path, "drained", time.monotonic_ns() + 60 * 10**9)
    worker = run("""
from holdfast import worker
print(worker.stop_requested(), worker.stop_reason(), 0 < worker.time_left_s() <= 60, flush=True)
worker.on_stop(lambda reason: print(reason, flush=True))
input()
""")
    assert worker.stdout.readline() == "True drained True\n"
    assert worker.stdout.readline() == "drained\n"


def test_alone_all_of_it_works(run):
    script = """
from holdfast import worker
worker.heartbeat(1)
worker.on_stop(print)
print(worker.stop_requested(), repr(worker.stop_reason()), worker.time_left_s())
print(worker.rank(), worker.world_size(), worker.local_rank(), worker.local_world_size(), worker.restart_count(),
      worker.generation(), repr(worker.run_id()))
"""
    worker = run(script, HOLDFAST_WORKER_PAGE="")
    assert worker.stdout.read() == "False '' inf\n0 1 0 1 0 1 ''\n"


def test_a_page_that_cannot_be_made_harms_nobody(run):
    worker = run(
        "from holdfast import worker; worker.heartbeat(); worker.on_stop(print); print(worker.stop_requested())",
        HOLDFAST_WORKER_PAGE="/nowhere/page",
    )
    assert worker.stdout.read() == "False\n"


@pytest.fixture
def full_memory(tmp_path):
    """A file system in memory with names left and not a free byte."""
    place = tmp_path / "memory"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=True)
    try:
        with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        assert os.statvfs(place).f_bfree == 0
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.root
def test_full_memory_harms_no_program(run, full_memory):
    page = str(full_memory / "page")
    worker = run(
        "from holdfast import worker; worker.heartbeat(3); worker.on_stop(print); print(worker.stop_requested())",
        HOLDFAST_WORKER_PAGE=page,
    )
    assert (worker.stdout.read(), worker.wait(PATIENCE_S)) == ("False\n", 0)
    assert read_page(page) is None


def test_a_page_that_a_child_opens_keeps_its_numbers(run, path):
    """Such as a data loader that calls the same functions as the program that started it."""
    worker = run("""
import subprocess, sys
from holdfast import worker
worker.heartbeat(3)
subprocess.run([sys.executable, "-c", "from holdfast import worker; worker.heartbeat(4)"], check=True)
print("ready", flush=True)
input()
""")
    assert worker.stdout.readline() == "ready\n"
    numbers = read_page(path)
    assert (numbers[BEATS], numbers[STEP]) == (2, 4)


def test_the_place_of_a_worker(run):
    script = """
from holdfast import worker
print(worker.rank(), worker.world_size(), worker.local_rank(), worker.local_world_size(), worker.restart_count(),
      worker.generation(), worker.run_id())
"""
    environ = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_RUN_ID": "job7",
    }
    assert run(script, **environ).stdout.read() == "5 8 1 4 2 3 job7\n"
    assert run(script, HOLDFAST_GENERATION="9", **environ).stdout.read() == "5 8 1 4 2 9 job7\n"


def test_a_heartbeat_makes_no_system_call(run):
    """Proved by the kernel, which kills the process at any system call but write and exit."""
    script = """
import ctypes, os, struct
from holdfast import worker
def work():
    for step in range(10_000):
        worker.heartbeat(step)
        worker.stop_requested()
work()
LOAD, IF_EQUAL, RETURN, ALLOW, KILL = 0x20, 0x15, 0x06, 0x7FFF0000, 0x80000000
write, exit_group = {"x86_64": (1, 231), "aarch64": (64, 94)}[os.uname().machine]
allowed = [(IF_EQUAL, 2, 0, write), (IF_EQUAL, 1, 0, exit_group)]
program = [(LOAD, 0, 0, 0), *allowed, (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)]
code = b"".join(struct.pack("HBBI", *line) for line in program)
memory = ctypes.create_string_buffer(code, len(code))
filter = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(memory)))
prctl = ctypes.CDLL(None).prctl
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
assert prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert prctl(SECCOMP, FILTER, ctypes.byref(filter)) == 0
work()
os.write(1, b"alive\\n")
os.getppid()
os.write(1, b"nobody watches\\n")
"""
    worker = run(script)
    assert worker.stdout.read() == "alive\n"
    assert worker.wait(PATIENCE_S) == -signal.SIGSYS


def test_the_package_needs_the_standard_library_only():
    code = """
import sys
from holdfast import worker
worker.heartbeat()
worker.rank()
print(sorted(name for name in sys.modules if name.startswith("holdfast")), "msgspec" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == (
        "['holdfast', 'holdfast._lazy', 'holdfast.worker', 'holdfast.worker.heartbeats', "
        "'holdfast.worker.identity', 'holdfast.worker.shared_memory'] False\n"
    )
