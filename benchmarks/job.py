"""The launcher as people start it: `holdfast run` beside `torchrun`, both from the same environment.

A job of two workers that do nothing, until the command has ended; the limit is the least that a Python launcher can do,
which starts two interpreters and waits for them. And in a job of four, how long after one worker's crash the others get
SIGTERM; the limit is the wake-up of a process that polls the pidfd of a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.crash import SETTLE_S, WORKERS, _time_of
from benchmarks.crash_worker import BY_EXIT, BY_SIGNAL
from benchmarks.limits import PIDFD, pidfd_wake_up_ms
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.subject import HOLDFAST, POLL_PERIOD_S, TORCH
from benchmarks.topics import COLD_START, CRASH
from benchmarks.workplace import BenchmarkError, script

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

START_TARGET = 1 / 20
CRASH_TARGET_MS = 5.0

LEAST = "least launcher"
"""An interpreter that starts two others and waits for them."""

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
    everybody = (HOLDFAST, TORCH, LEAST)
    wall = in_turns(2 if quick else 15, {name: partial(_wall_ms, name, idle) for name in everybody})
    crashing: dict[str, Callable[[int], list[float]]] = {
        name: partial(_crash_ms, name, workplace) for name in (HOLDFAST, TORCH)
    }
    crashing[PIDFD] = lambda _: [pidfd_wake_up_ms() for _ in range(WORKERS - 1)]
    crash = in_turns(2 if quick else 15, crashing)
    return [
        Measurement(
            "job of 2 that do nothing: command → its end",
            "ms",
            wall,
            [Target(START_TARGET, at_most=True, against=TORCH)],
            topic=COLD_START,
            is_headline=True,
        ),
        Measurement(
            f"job of {WORKERS}: crash → SIGTERM at the siblings",
            "ms",
            crash,
            [Target(CRASH_TARGET_MS, at_most=True)],
            topic=CRASH,
            is_headline=True,
        ),
    ]


def commands(program: str, *args: str, workers: int = 2) -> dict[str, list[str]]:
    bin_dir = os.path.dirname(sys.executable)
    flags = [f"--nproc-per-node={workers}", program, *args]
    return {
        HOLDFAST: [os.path.join(bin_dir, "holdfast"), "run", *flags],
        TORCH: [os.path.join(bin_dir, "torchrun"), *flags],
        LEAST: [sys.executable, "-I", "-S", "-c", _LEAST_LAUNCHER, program, *args],
    }


def environment() -> dict[str, str]:
    # Set, so that neither has anything to say about it.
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _wall_ms(name: str, program: str, _: int) -> list[float]:
    began = time.perf_counter()
    ran = subprocess.run(commands(program)[name], env=environment(), capture_output=True, check=False)
    took_ms = (time.perf_counter() - began) * 1000
    if ran.returncode:
        raise BenchmarkError(f"{name} failed; it wrote:\n{ran.stderr.decode(errors='replace')}")
    return [took_ms]


def _crash_ms(name: str, workplace: Workplace, number: int) -> list[float]:
    directory = workplace.fresh("job-crash")
    os.mkfifo(os.path.join(directory, "ready"))
    # A poller's answer depends on where in its period the crash falls; this spreads crashes evenly over it.
    delay_s = SETTLE_S + POLL_PERIOD_S * (number * _GOLDEN % 1)
    args = ("${local_rank}", str(WORKERS), directory, str(delay_s), (BY_EXIT, BY_SIGNAL)[number % 2])
    command = commands(script("crash_worker.py"), *args, workers=WORKERS)[name]
    ran = subprocess.run(command, env=environment(), capture_output=True, check=False)
    if ran.returncode != 1:
        raise BenchmarkError(f"{name} ended with {ran.returncode} and not 1; it wrote:\n{ran.stderr.decode()}")
    crashed, *signalled = (_time_of(rank, directory) for rank in range(WORKERS))
    return [(at - crashed) / 1e6 for at in signalled]
