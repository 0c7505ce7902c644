"""What the parent of a running set takes: memory and threads, in a process that does nothing else.

Resident memory of the parent; where there are processes between it and its workers, as holdfast's keeper, also with
what these have for themselves. The limit is an interpreter that spawned the same workers itself.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measuring import Measurement, Rounds, in_turns
from benchmarks.subject import MODULES
from benchmarks.topics import FOOTPRINT
from benchmarks.workplace import BenchmarkError, script

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

WORKERS = 8

_MODULES = {**MODULES, "bare parent": ""}
_NO_TEE, _TEE_BOTH = 0, 3


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 3
    plain = in_turns(rounds, {name: _prober(module, _NO_TEE, workplace) for name, module in _MODULES.items()})
    with_tee = (
        {}
        if workplace.quick
        else in_turns(rounds, {name: _prober(module, _TEE_BOTH, workplace) for name, module in _MODULES.items()})
    )

    def samples(answers: dict[str, list[_Footprint]], field: str) -> dict[str, Rounds]:
        return {name: [[getattr(answer, field)] for answer in rounds] for name, rounds in answers.items()}

    parent = f"start_processes() of {WORKERS}"

    def row(what: str, unit: str, answers: dict[str, list[_Footprint]], field: str) -> Measurement:
        return Measurement(f"{parent}: {what}", unit, samples(answers, field), topic=FOOTPRINT)

    rows = [
        row("resident memory", "MiB", plain, "parent_mib"),
        row("… with helper processes", "MiB", plain, "all_mib"),
        row("threads", "", plain, "threads"),
    ]
    if with_tee:
        rows.insert(2, row("… and a tee of both streams", "MiB", with_tee, "all_mib"))
        rows.append(row("… with a tee of both streams", "", with_tee, "threads"))
    return rows


class _Footprint(NamedTuple):
    parent_mib: float
    all_mib: float
    threads: float


def _prober(module: str, tee: int, workplace: Workplace) -> Callable[[int], _Footprint]:
    def probe(_: int) -> _Footprint:
        log_dir = workplace.fresh("footprint")
        command = [sys.executable, "-P", script("footprint_probe.py"), module, str(WORKERS), log_dir, str(tee)]
        answer = subprocess.run(command, capture_output=True, check=False, text=True)
        if answer.returncode:
            raise BenchmarkError(f"the parent with {module or 'nothing'} failed; it wrote:\n{answer.stderr.strip()}")
        parent_kib, helpers_kib, threads = map(int, answer.stdout.split())
        return _Footprint(parent_kib / 1024, (parent_kib + helpers_kib) / 1024, threads)

    return probe
