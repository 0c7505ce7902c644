"""A cold job as most people have them: its first start, and its restart after one worker's crash.

Two workers, of a program that imports nothing and of one that imports torch: until the last of them has come to the
line after its imports. The limit starts as many interpreters at once and imports the same, without a launcher.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.job import commands, environment
from benchmarks.limits import INTERPRETERS, interpreters_s
from benchmarks.measuring import Measurement, in_turns
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.topics import COLD_START, RESTART
from benchmarks.workplace import BenchmarkError, script

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring import Rounds
    from benchmarks.workplace import Workplace

WORKERS = 2
JOB_MAX_S = 120
"""A job that takes longer hangs."""

_PROGRAMS = {
    "pass": (f"{WORKERS} workers that import nothing", "all run"),
    "import torch": (f"{WORKERS} workers that import torch", "all have it"),
}
"""What workers do before the line that is waited for, and how that is told."""


def measure(workplace: Workplace) -> list[Measurement]:
    made = []
    # What importing torch costs without --warm is in the numbers of the scenario `warm`, too: torchrun's are.
    for imports, (who, done) in list(_PROGRAMS.items())[: 1 if workplace.quick else None]:
        everybody: dict[str, Callable[[int], tuple[float, float]]] = {
            name: partial(_job, name, imports, workplace) for name in (HOLDFAST, TORCH)
        }
        everybody[INTERPRETERS] = partial(_bare, imports)
        answers = in_turns(1 if workplace.quick else 5, everybody)
        made += [
            Measurement(
                f"{who}: {since} → {done}",
                "s",
                _samples(answers, index),
                topic=topic,
                is_headline=True,
            )
            for index, (since, topic) in enumerate((("command", COLD_START), ("crash", RESTART)))
        ]
    return made


def _samples(answers: dict[str, list[tuple[float, float]]], index: int) -> dict[str, Rounds]:
    return {name: [[answer[index]] for answer in rounds] for name, rounds in answers.items()}


def _bare(imports: str, _: int) -> tuple[float, float]:
    limit_s = interpreters_s(WORKERS, imports)
    return limit_s, limit_s


def _job(name: str, imports: str, workplace: Workplace, _: int) -> tuple[float, float]:
    """Seconds of the first start, and of the restart."""
    directory = workplace.fresh("restart")
    program = os.path.join(directory, "program.py")
    with open(script("restart_worker.py")) as worker, open(program, "w") as file:
        file.write(f"{imports}\n{worker.read()}")
    began_ns = time.monotonic_ns()
    command = commands(program, directory, str(WORKERS), workers=WORKERS)[name]
    flags = ["--max-restarts=1"]
    at = command.index(f"--nproc-per-node={WORKERS}")
    try:
        ran = subprocess.run(
            [*command[:at], *flags, *command[at:]],
            env=environment(),
            capture_output=True,
            check=False,
            text=True,
            timeout=JOB_MAX_S,
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{name} did not restart its workers within {JOB_MAX_S} s") from None
    if ran.returncode:
        raise BenchmarkError(f"{name} failed with exit code {ran.returncode}; it wrote:\n{ran.stderr}")
    first = max(_read(directory, f"imported.0.{rank}") for rank in range(WORKERS))
    again = max(_read(directory, f"imported.1.{rank}") for rank in range(WORKERS))
    return (first - began_ns) / 1e9, (again - _read(directory, "crashed.0.0")) / 1e9


def _read(directory: str, name: str) -> int:
    with open(os.path.join(directory, name)) as file:
        return int(file.read())
