"""Workers that import torch: their first start and their restart after a crash, `holdfast run --warm` beside torchrun.

Until the line after `import torch` runs in all workers, and until they have done an all-reduce over gloo; and the
memory of those workers once they wait (their proportional set sizes together). The limit is a process that imports
torch and forks as many, which do no all-reduce.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.topics import WARM_START
from benchmarks.workplace import BenchmarkError, script

if TYPE_CHECKING:
    from benchmarks.measuring import Rounds
    from benchmarks.workplace import Workplace

WORKERS = (2, 8)
FIRST_TARGET, RESTART_TARGET, MEMORY_TARGET = 1 / 3, 1 / 20, 1 / 2
TARGETED = 8
"""The targets are for this many workers."""

JOB_MAX_S = 120
"""A job that takes longer hangs."""

END_MAX_S = 60
"""How long a job may take to end that was told to; both give their workers 30 s."""

_FORKS = "forks"
_QUANTITIES = ("first import", "first all-reduce", "restart import", "restart all-reduce", "memory")


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 3
    made = []
    for workers in WORKERS[: 1 if workplace.quick else None]:
        everybody = {name: partial(_job, name, workers, workplace) for name in (HOLDFAST, TORCH)}
        answers = in_turns(rounds, {**everybody, _FORKS: partial(_forks, workers)})
        made += _measurements(workers, answers)
    return made


def _measurements(workers: int, answers: dict[str, list[dict[str, float]]]) -> list[Measurement]:
    def of(quantity: str) -> dict[str, Rounds]:
        return {
            name: [[each[quantity]] for each in rounds] for name, rounds in answers.items() if quantity in rounds[0]
        }

    def against(bound: float) -> list[Target]:
        return [Target(bound, at_most=True, against=TORCH)] if workers == TARGETED else []

    def row(what: str, quantity: str, bound: float = 0.0, unit: str = "s") -> Measurement:
        targets = against(bound) if bound else []
        return Measurement(
            f"{workers} workers: {what}", unit, of(quantity), targets, topic=WARM_START, is_headline=bool(targets)
        )

    return [
        row("command → torch imported in all", "first import", FIRST_TARGET),
        row("command → all-reduce over gloo done", "first all-reduce"),
        row("crash → torch imported in all", "restart import", RESTART_TARGET),
        row("crash → all-reduce over gloo done", "restart all-reduce"),
        row("memory of all (PSS)", "memory", MEMORY_TARGET, "MiB"),
    ]


def _job(name: str, workers: int, workplace: Workplace, _: int) -> dict[str, float]:
    directory = workplace.fresh("warm")
    bin_dir = os.path.dirname(sys.executable)
    flags = [
        f"--nproc-per-node={workers}",
        "--max-restarts=1",
        "--monitor-interval=0.1",
        script("warm_worker.py"),
        directory,
    ]
    command = {
        HOLDFAST: [os.path.join(bin_dir, "holdfast"), "run", "--warm", *flags],
        TORCH: [os.path.join(bin_dir, "torchrun"), "--standalone", *flags],
    }[name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if name == TORCH:
        # Its agent keeps what the workers of the first attempt left in its store, and those of the second would wait
        # for each other at the old addresses.
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    messages = workplace.path(f"{name}-warm.messages")
    began_ns = time.monotonic_ns()
    with open(messages, "w") as stderr, subprocess.Popen(command, env=environment, stderr=stderr) as job:
        try:
            pids = _await(directory, "idle.1.", workers, job, messages)
            memory_kib = sum(map(_pss_kib, pids))
            _require_warm(messages)
        finally:
            job.send_signal(signal.SIGTERM)
            try:
                job.wait(END_MAX_S)
            except subprocess.TimeoutExpired:
                job.kill()
    crashed_ns = max(_values(directory, "crashed.0."))

    def until(what: str, since_ns: int) -> float:
        return (max(_values(directory, what)) - since_ns) / 1e9

    seconds = [
        until("imported.0.", began_ns),
        until("reduced.0.", began_ns),
        until("imported.1.", crashed_ns),
        until("reduced.1.", crashed_ns),
    ]
    return dict(zip(_QUANTITIES, [*seconds, memory_kib / 1024], strict=True))


def _require_warm(messages: str) -> None:
    """A job that could not be started warm says so, and is not what is measured here."""
    with open(messages) as file:
        if "cold" in (text := file.read()):
            raise BenchmarkError(f"the job was not started warm; it wrote:\n{text}")


def _await(directory: str, start: str, count: int, job: subprocess.Popen[bytes], messages: str) -> list[int]:
    deadline = time.monotonic() + JOB_MAX_S
    while len(values := _values(directory, start)) < count:
        if job.poll() is not None or time.monotonic() > deadline:
            with open(messages) as file:
                raise BenchmarkError(f"the job did not come so far; it wrote:\n{file.read()}")
        time.sleep(0.02)
    return values


def _values(directory: str, start: str) -> list[int]:
    found = []
    for name in os.listdir(directory):
        if name.startswith(start) and not name.endswith(".new"):
            with open(os.path.join(directory, name)) as file:
                found.append(int(file.read()))
    return found


def _pss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def _forks(workers: int, _: int) -> dict[str, float]:
    """A process that imports torch, and as many forks of it: until the last of them runs a line of Python."""
    program = (
        "import os, time, torch\n"
        "said, say = os.pipe(); end, hold = os.pipe(); began = time.monotonic_ns()\n"
        f"for _ in range({workers}):\n"
        "    if os.fork() == 0:\n"
        "        os.close(hold); os.write(say, b'%d %d\\n' % (time.monotonic_ns(), os.getpid()))\n"
        "        os.read(end, 1); os._exit(0)\n"
        "lines = os.fdopen(said)\n"
        f"answers = [lines.readline().split() for _ in range({workers})]\n"
        "ran = max(int(at) for at, _ in answers)\n"
        "files = [line.split() for _, pid in answers for line in open(f'/proc/{pid}/smaps_rollup')]\n"
        "pss = [words[1] for words in files if words[0] == 'Pss:']\n"
        "print(ran, (ran - began) / 1e9, sum(map(int, pss)) / 1024)\n"
    )
    began_ns = time.monotonic_ns()
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ran_ns, forked_s, memory_mib = ran.stdout.split()
    first_s = (int(ran_ns) - began_ns) / 1e9
    return dict(zip(_QUANTITIES, [first_s, first_s, float(forked_s), float(forked_s), float(memory_mib)], strict=True))
