"""How long a set of workers that do nothing takes, from the call of `start_processes` to the return of `wait`.

The limit is to spawn the same commands one after the other and to wait for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Measurement, in_turns
from benchmarks.subject import HOLDFAST, POLL_PERIOD_S, TORCH, rank_environments
from benchmarks.topics import COLD_START
from benchmarks.workplace import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

SETS: dict[str, tuple[int, list[str]]] = {
    "2 x true": (2, ["true"]),
    "8 x true": (8, ["true"]),
    "2 x python": (2, [sys.executable, "-c", "pass"]),
}


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 2 if workplace.quick else 20
    with Subject(HOLDFAST, "start", workplace) as holdfast, Subject(TORCH, "start", workplace) as torch:

        def contestants(nprocs: int, command: list[str]) -> dict[str, Callable[[int], list[float]]]:
            return {
                HOLDFAST: lambda _: [holdfast.ask(nprocs, command, workplace.fresh("start"))],
                TORCH: lambda _: [torch.ask(nprocs, command, workplace.fresh("start"))],
                "bare spawn": lambda _: [_bare_ms(nprocs, command)],
            }

        return [
            Measurement(
                f"start_processes() of {title} → wait() returns",
                "ms",
                in_turns(rounds, contestants(nprocs, command)),
                topic=COLD_START,
            )
            for title, (nprocs, command) in SETS.items()
        ]


def subject(system: Any, nprocs: int, command: list[str], directory: str) -> float:
    logs_specs = system.DefaultLogsSpecs(log_dir=os.path.join(directory, "logs"))
    program, *args = command
    began = time.monotonic_ns()
    context = system.start_processes(
        "start", program, dict.fromkeys(range(nprocs), tuple(args)), rank_environments(nprocs), logs_specs
    )
    result = context.wait(-1, POLL_PERIOD_S)
    elapsed_ms = (time.monotonic_ns() - began) / 1e6
    assert not result.is_failed(), result
    return elapsed_ms


def _bare_ms(nprocs: int, command: list[str]) -> float:
    began = time.monotonic_ns()
    processes = [subprocess.Popen(command) for _ in range(nprocs)]
    for process in processes:
        process.wait()
    return (time.monotonic_ns() - began) / 1e6
