"""Measure holdfast side by side with torch, and print one table.

Exit code 0 if every target is met, 1 if one is missed, 2 if something could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from benchmarks.machine import machine
from benchmarks.table import table
from benchmarks.workplace import BenchmarkError, Workplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring import Measurement

SCENARIOS = ("job", "crash", "value", "tee", "start", "footprint", "rendezvous", "faults", "worker_store", "warm")

_CHANGES_WORKERS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME")
"""Settings of the caller's shell that would make the workers other programs than those described."""


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are: {', '.join(SCENARIOS)}")
    if find_spec("torch") is None:
        print("this compares with torch, which is not installed: pip install torch==2.13.0", file=sys.stderr)
        return 2
    for name in _CHANGES_WORKERS:
        os.environ.pop(name, None)
    facts = machine()
    try:
        with Workplace(quick=options.quick) as workplace:
            # What is run here is not listed among the runs of the person who measures.
            os.environ["XDG_STATE_HOME"] = workplace.path("state")
            measurements = _measured(options.scenarios or SCENARIOS, workplace)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2
    print(" · ".join(f"{name} {value}" for name, value in facts.items()))
    print("median (quartiles around it) of rounds in turns; ratios are taken round by round", end="\n\n")
    print(table(measurements))
    if options.json:
        _write_json(options.json, facts, options.quick, measurements)
    missed = sum(not verdict.is_met for each in measurements for verdict in each.verdicts())
    if missed:
        print(f"\n{missed} target{'s' * (missed > 1)} MISSED")
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help=f"of {', '.join(SCENARIOS)}; all if none is given"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller output, under a minute")
    parser.add_argument("--json", metavar="PATH", help="write every sample to this file")
    return parser


def _measured(scenarios: Sequence[str], workplace: Workplace) -> list[Measurement]:
    measurements: list[Measurement] = []
    for name in scenarios:
        began = time.monotonic()
        measurements += import_module(f"benchmarks.{name}").measure(workplace)
        print(f"{name}: measured in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return measurements


def _write_json(path: str, facts: dict[str, str], quick: bool, measurements: Sequence[Measurement]) -> None:
    document = {
        "machine": facts,
        "quick": quick,
        "measurements": [
            {
                "what": each.what,
                "unit": each.unit,
                "rounds": each.samples,
                "targets": [
                    verdict.target._asdict() | {"value": verdict.value, "is_met": verdict.is_met}
                    for verdict in each.verdicts()
                ],
            }
            for each in measurements
        ],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
