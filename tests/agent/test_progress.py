from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from liveness import status

from holdfast.agent.progress import CPU_IDLE_SHARE, LATE_MIN_S, Progress, Reading, WatchedWorker, WorkerClock

SUPPORT = str(Path(__file__).parent.parent / "support")
TIMEOUT_S = 40.0
STEP_S = TIMEOUT_S / 4


class Seen:
    """A worker of whom a test says what is seen."""

    def __init__(self):
        self.values = {}
        self.has_ended = False
        self.looks = 0

    def read(self, output_bytes):
        self.looks += 1
        return None if self.has_ended else Reading(output_bytes=output_bytes, **self.values)


class Job:
    """Workers on a clock that a test moves."""

    def __init__(self, count=1):
        self.now = 1000.0
        self.workers = {rank: Seen() for rank in range(count)}
        self.written = dict.fromkeys(range(count), 0)
        self.progress = Progress(TIMEOUT_S, self.workers, lambda: self.written, self.now)

    def sees(self, rank=0, **values):
        self.workers[rank].values = values

    def next(self):
        """Go to the next look, and say who hangs."""
        self.now = self.progress.next_look_at
        return {hung.local_rank: hung.why for hung in self.progress.look(self.now)}


def test_a_worker_that_neither_writes_nor_computes_hangs_after_the_timeout():
    job = Job()
    begin = job.now
    while not (hung := job.next()):
        assert job.now < begin + 2 * TIMEOUT_S
    assert job.now == begin + TIMEOUT_S
    assert hung == {0: "no output and no CPU use for 40 s"}


def test_output_is_progress():
    job = Job()
    for _ in range(20):
        job.written[0] += 1
        assert job.next() == {}
    written_until = job.now
    while not job.next():
        pass
    assert job.now == written_until + TIMEOUT_S


def test_computing_is_progress():
    job = Job()
    cpu_s = 0.0
    for _ in range(20):
        cpu_s += 2 * CPU_IDLE_SHARE * STEP_S
        job.sees(cpu_s=cpu_s)
        assert job.next() == {}


def test_threads_that_only_look_at_a_clock_are_no_progress():
    job = Job()
    cpu_s = 0.0
    begin = job.now
    while not job.next():
        cpu_s += CPU_IDLE_SHARE * STEP_S / 2
        job.sees(cpu_s=cpu_s)
        assert job.now < begin + 2 * TIMEOUT_S


def test_a_child_that_has_ended_is_progress():
    job = Job()
    job.sees(cpu_s=5.0)
    job.next()
    job.sees(cpu_s=1.0)
    job.next()
    ended_at = job.now
    while not job.next():
        pass
    assert job.now == ended_at + TIMEOUT_S


def test_from_the_first_heartbeat_on_only_heartbeats_count():
    job = Job()
    job.sees(beats=1, beat_at=job.now + 1, step=17)
    assert job.next() == {}
    job.written[0] += 100
    job.sees(beats=1, beat_at=1001.0, step=17, cpu_s=100.0)
    assert job.next() == {0: "no heartbeat for 40 s, the last one at step 17"}
    assert job.now == 1001.0 + TIMEOUT_S


def test_a_worker_with_heartbeats_costs_one_look_a_timeout():
    job = Job()
    for beats in range(1, 11):
        job.sees(beats=beats, beat_at=job.progress.next_look_at)
        assert job.next() == {}
    assert job.now == 1000.0 + STEP_S + 9 * TIMEOUT_S
    assert job.workers[0].looks == 10


def test_a_look_before_its_time_costs_nothing():
    job = Job()
    assert job.progress.look(job.now + STEP_S / 2) == []
    assert job.workers[0].looks == 0


def test_a_worker_that_has_ended_does_not_hang():
    job = Job(2)
    job.workers[0].has_ended = True
    job.workers[1].has_ended = True
    assert job.next() == {}
    assert job.progress.next_look_at == math.inf
    assert job.progress.look(1e9) == []


def test_workers_that_wait_for_each_other_are_found_together():
    job = Job(4)
    for _ in range(3):
        job.written = {rank: written + 1 for rank, written in job.written.items()}
        job.next()
    while not (hung := job.next()):
        pass
    assert list(hung) == [0, 1, 2, 3]


def test_one_that_hangs_among_others_that_do_not_is_found():
    job = Job(3)
    hung = {}
    while not hung:
        job.written = {0: job.written[0] + 1, 1: 0, 2: job.written[2] + 1}
        hung = job.next()
    assert list(hung) == [1]


def test_a_hang_that_nobody_ends_is_told_again_without_haste():
    job = Job()
    while not job.next():
        pass
    told_at = job.now
    assert list(job.next()) == [0]
    assert job.now == told_at + STEP_S


def test_a_heartbeat_from_the_future_is_one_of_now():
    clock = WorkerClock(TIMEOUT_S, 0.0)
    clock.take_in(Reading(beats=1, beat_at=1e9), STEP_S)
    assert clock.next_look_at == STEP_S + TIMEOUT_S


def test_an_agent_that_was_stopped_itself_blames_nobody_for_that_time():
    job = Job()
    job.next()
    job.now += 10 * TIMEOUT_S
    assert job.progress.look(job.now) == []
    woke_at = job.now
    while not job.next():
        pass
    assert job.now == woke_at + TIMEOUT_S


def test_an_agent_that_is_a_little_late_is_not_taken_for_stopped():
    job = Job()
    begin = job.now
    late_s = min(LATE_MIN_S, STEP_S) / 2
    while not job.progress.look(job.now):
        job.now = job.progress.next_look_at + late_s
        assert job.now < begin + 2 * TIMEOUT_S


def test_a_state_that_explains_it_is_named():
    job = Job()
    job.sees(state="T")
    while not (hung := job.next()):
        pass
    assert hung[0].endswith("; it is stopped by a signal")


# What is read of real processes


@pytest.fixture
def start_python():
    """Starts Python code; it ends with the test."""
    started = []

    def start(code, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | environment, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_cpu_time_of_a_worker_and_its_child_is_read(start_python, tmp_path):
    process = start_python("""
import os, time
def burn(cpu_s):
    begin = time.process_time()
    while time.process_time() < begin + cpu_s:
        pass
if os.fork() == 0:
    burn(0.3)
    os._exit(0)
os.wait()
child_reads, parent_writes = os.pipe()
told_reads, told_writes = os.pipe()
if os.fork() == 0:
    os.close(parent_writes)
    burn(0.3)
    os.write(told_writes, b"x")
    os.read(child_reads, 1)
    os._exit(0)
burn(0.3)
os.read(told_reads, 1)
print("ready", flush=True)
time.sleep(1000)
""")
    reading = WatchedWorker(process.pid, str(tmp_path / "none")).read(7)
    assert reading.cpu_s >= 0.85
    assert reading.output_bytes >= 7  # and what went to the stderr that it shares
    assert reading.beats == 0


def test_what_a_program_of_a_program_computes_is_read(start_python, tmp_path):
    process = start_python("""
import os, time
end, held = os.pipe()
if os.fork() == 0:
    os.close(held)
    if os.fork() == 0:
        while time.process_time() < 0.3:
            pass
        print("ready", flush=True)
    os.read(end, 1)
    os._exit(0)
time.sleep(1000)
""")
    assert WatchedWorker(process.pid, str(tmp_path / "none")).read(0).cpu_s >= 0.25


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_goes_to_the_agents_own_console_counts_as_output(stream, tmp_path):
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    code = f"""
import sys
for word in sys.stdin:
    sys.{stream}.write(word)
    sys.{stream}.flush()
    print("said", file=sys.{other}, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, text=True, bufsize=1, **{other: -1})
    worker = WatchedWorker(process.pid, str(tmp_path / "none"))
    try:
        seen = []
        for _ in range(3):
            process.stdin.write("twelve bytes\n")
            assert getattr(process, other).readline() == "said\n"
            seen.append(worker.read(0).output_bytes)
        assert seen == sorted(set(seen))
        assert worker.read(0).output_bytes == seen[-1]
    finally:
        process.kill()
        process.communicate()


def test_heartbeats_of_a_worker_are_read(start_python, tmp_path):
    page = str(tmp_path / "page")
    before = time.monotonic()
    process = start_python(
        """
import time
from holdfast import worker
worker.heartbeat(41)
worker.heartbeat(42)
print("ready", flush=True)
time.sleep(1000)
""",
        HOLDFAST_WORKER_PAGE=page,
    )
    reading = WatchedWorker(process.pid, page).read(0)
    assert (reading.beats, reading.step) == (2, 42)
    assert before <= reading.beat_at <= time.monotonic()


def test_a_stopped_worker_hangs_like_any_other(start_python, tmp_path):
    process = start_python("import time; print('ready', flush=True)\nwhile True: pass")
    os.kill(process.pid, signal.SIGSTOP)
    while not status(process.pid, "State").startswith("T"):
        time.sleep(0.001)
    now = time.monotonic()
    progress = Progress(1e-9, {0: WatchedWorker(process.pid, str(tmp_path / "none"))}, dict, now)
    progress.look(now + 1)
    (hung,) = progress.look(now + 4)
    assert hung.why.endswith("; it is stopped by a signal")


def test_a_process_that_has_ended_is_read_as_such(tmp_path):
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert WatchedWorker(process.pid, str(tmp_path / "none")).read(0) is None  # a zombie
    process.wait()
    assert WatchedWorker(process.pid, str(tmp_path / "none")).read(0) is None
