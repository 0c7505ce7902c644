"""The launcher as people start it: `holdfast run` beside `torchrun`, both from the same environment.

A job of two workers that do nothing, until the command has ended; the limit is the least that a Python launcher can do,
which starts two interpreters and waits for them. The resident memory of a command whose two workers wait; the limit is
that of the same least launcher. And in a job of four, how long after one worker's crash the others get SIGTERM.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.crash import SETTLE_S, WORKERS, _time_of
from benchmarks.crash_worker import BY_EXIT, BY_SIGNAL
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.subject import HOLDFAST, POLL_PERIOD_S, TORCH
from benchmarks.workplace import BenchmarkError, script

if TYPE_CHECKING:
    from benchmarks.workplace import Workplace

START_TARGET = 1 / 20
MEMORY_TARGET_MIB = 25.0
CRASH_TARGET_MS = 5.0

READY_MAX_S = 60
"""A job that takes longer to start hangs."""

_LEAST = "least launcher"
_LEAST_LAUNCHER = (
    "import os, sys\n"
    "pids = [os.posix_spawn(sys.executable, [sys.executable, '-u', *sys.argv[1:]], os.environ) for _ in range(2)]\n"
    "codes = [os.waitpid(pid, 0)[1] for pid in pids]"
)
_GOLDEN = 0.618034


def measure(workplace: Workplace) -> list[Measurement]:
    quick = workplace.quick
    idle = workplace.path("no_op.py")
    with open(idle, "w"):
        pass
    everybody = (HOLDFAST, TORCH, _LEAST)
    wall = in_turns(3 if quick else 15, {name: partial(_wall_ms, name, idle) for name in everybody})
    memory = in_turns(1 if quick else 5, {name: partial(_resident_mib, name, workplace) for name in everybody})
    crash = in_turns(4 if quick else 20, {name: partial(_crash_ms, name, workplace) for name in (HOLDFAST, TORCH)})
    return [
        Measurement(
            "job of 2 that do nothing, start to end", "ms", wall, [Target(START_TARGET, at_most=True, against=TORCH)]
        ),
        Measurement("agent of 2: resident memory", "MiB", memory, [Target(MEMORY_TARGET_MIB, at_most=True)]),
        Measurement(
            f"job of {WORKERS}: crash → SIGTERM at siblings", "ms", crash, [Target(CRASH_TARGET_MS, at_most=True)]
        ),
    ]


def _commands(program: str, *args: str, workers: int = 2) -> dict[str, list[str]]:
    bin_dir = os.path.dirname(sys.executable)
    flags = [f"--nproc-per-node={workers}", program, *args]
    return {
        HOLDFAST: [os.path.join(bin_dir, "holdfast"), "run", *flags],
        TORCH: [os.path.join(bin_dir, "torchrun"), *flags],
        _LEAST: [sys.executable, "-I", "-S", "-c", _LEAST_LAUNCHER, program, *args],
    }


def _environment() -> dict[str, str]:
    # Set, so that neither has anything to say about it.
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _wall_ms(name: str, program: str, _: int) -> list[float]:
    began = time.perf_counter()
    ran = subprocess.run(_commands(program)[name], env=_environment(), capture_output=True, check=False)
    took_ms = (time.perf_counter() - began) * 1000
    if ran.returncode:
        raise BenchmarkError(f"{name} failed; it wrote:\n{ran.stderr.decode(errors='replace')}")
    return [took_ms]


def _resident_mib(name: str, workplace: Workplace, _: int) -> list[float]:
    """Of the command's own process, once its workers run."""
    directory = workplace.fresh("memory")
    fifo, program = os.path.join(directory, "ready"), os.path.join(directory, "wait.py")
    os.mkfifo(fifo)
    with open(program, "w") as file:
        file.write(f"import os, time\nopen({fifo!r}, 'w').write('x')\ntime.sleep(2)\n")
    ready = os.open(fifo, os.O_RDWR)  # for writing too: a reader that leaves would hold the second worker up
    with subprocess.Popen(_commands(program)[name], env=_environment(), stderr=subprocess.DEVNULL) as command:
        is_there = select.select([ready], [], [], READY_MAX_S)[0]
        time.sleep(0.5)  # what it writes about the start of its workers is part of what it takes
        with open(f"/proc/{command.pid}/status") as status:
            resident_kib = next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
    os.close(ready)
    if not is_there or command.returncode:
        raise BenchmarkError(f"{name} failed with exit code {command.returncode}")
    return [resident_kib / 1024]


def _crash_ms(name: str, workplace: Workplace, number: int) -> list[float]:
    directory = workplace.fresh("job-crash")
    os.mkfifo(os.path.join(directory, "ready"))
    # A poller's answer depends on where in its period the crash falls; this spreads crashes evenly over it.
    delay_s = SETTLE_S + POLL_PERIOD_S * (number * _GOLDEN % 1)
    args = ("${local_rank}", str(WORKERS), directory, str(delay_s), (BY_EXIT, BY_SIGNAL)[number % 2])
    command = _commands(script("crash_worker.py"), *args, workers=WORKERS)[name]
    ran = subprocess.run(command, env=_environment(), capture_output=True, check=False)
    if ran.returncode != 1:
        raise BenchmarkError(f"{name} ended with {ran.returncode} and not 1; it wrote:\n{ran.stderr.decode()}")
    crashed, *signalled = (_time_of(rank, directory) for rank in range(WORKERS))
    return [(at - crashed) / 1e6 for at in signalled]
