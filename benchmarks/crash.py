"""How long after one worker's crash its siblings get SIGTERM.

Four workers are Python scripts. Rank 0 writes the time and crashes, by its exit code and by SIGKILL in turns; the
SIGTERM handlers of the others write the time. The parent is in `wait`. CLOCK_MONOTONIC is one for all processes.

The limit is the wake-up of a process that polls the pidfd of a child of its own which exits.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.crash_worker import BY_EXIT, BY_SIGNAL
from benchmarks.limits import PIDFD, pidfd_wake_up_ms
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.subject import HOLDFAST, POLL_PERIOD_S, TORCH, rank_environments
from benchmarks.topics import CRASH
from benchmarks.workplace import Subject, script

if TYPE_CHECKING:
    from benchmarks.workplace import Workplace

WORKERS = 4
SETTLE_S = 0.1
"""From the last worker's readiness to the earliest crash: the parent has long been in `wait` by then."""

TARGET_MS = 5.0

_GOLDEN = 0.618034


def measure(workplace: Workplace) -> list[Measurement]:
    with Subject(HOLDFAST, "crash", workplace) as holdfast, Subject(TORCH, "crash", workplace) as torch:
        answers = in_turns(
            3 if workplace.quick else 30,
            {
                HOLDFAST: lambda number: _ask(holdfast, number, workplace),
                TORCH: lambda number: _ask(torch, number, workplace),
                PIDFD: lambda _: {"signalled": [pidfd_wake_up_ms() for _ in range(WORKERS - 1)]},
            },
        )
    signalled = {name: [answer["signalled"] for answer in rounds] for name, rounds in answers.items()}
    returned = {name: [answer["returned"] for answer in answers[name]] for name in (HOLDFAST, TORCH)}
    returned[PIDFD] = signalled[PIDFD]
    return [
        Measurement(
            f"start_processes() of {WORKERS}: crash → SIGTERM at siblings",
            "ms",
            signalled,
            [Target(TARGET_MS, at_most=True)],
            topic=CRASH,
        ),
        Measurement(f"start_processes() of {WORKERS}: crash → wait() returns", "ms", returned, topic=CRASH),
    ]


def _ask(subject: Subject, number: int, workplace: Workplace) -> dict[str, list[float]]:
    # A poller's answer depends on where in its period the crash falls; this spreads crashes evenly over it.
    delay_s = SETTLE_S + POLL_PERIOD_S * (number * _GOLDEN % 1)
    answer: dict[str, list[float]] = subject.ask(workplace.fresh("crash"), delay_s, (BY_EXIT, BY_SIGNAL)[number % 2])
    return answer


def subject(system: Any, directory: str, delay_s: float, how: str) -> dict[str, list[float]]:
    os.mkfifo(os.path.join(directory, "ready"))
    context = system.start_processes(
        "crash",
        sys.executable,
        {
            rank: (script("crash_worker.py"), str(rank), str(WORKERS), directory, str(delay_s), how)
            for rank in range(WORKERS)
        },
        rank_environments(WORKERS),
        system.DefaultLogsSpecs(log_dir=os.path.join(directory, "logs")),
    )
    result = context.wait(-1, POLL_PERIOD_S)
    returned = time.monotonic_ns()
    assert 0 in result.failures, result
    crashed, *signalled = (_time_of(rank, directory) for rank in range(WORKERS))
    return {
        "signalled": [(at - crashed) / 1e6 for at in signalled],
        "returned": [(returned - crashed) / 1e6],
    }


def _time_of(rank: int, directory: str) -> int:
    with open(os.path.join(directory, str(rank))) as file:
        return int(file.read())
