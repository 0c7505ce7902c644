"""Measure holdfast side by side with torch, and print one table.

Exit code 0 if every target is met, 1 if one is missed, 2 if something could not be measured or read.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.machine import machine
from benchmarks.markdown import NoPlaceError, filled, require_place
from benchmarks.page import page
from benchmarks.results import Results, ResultsError, read, to_text
from benchmarks.table import table
from benchmarks.words import HOW_TO_READ, facts
from benchmarks.workplace import BenchmarkError, Workplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring import Measurement


class Scenario(NamedTuple):
    """How many seconds it takes on two quiet cores, in a whole run and in a quick one."""

    whole_s: int
    quick_s: int


SCENARIOS = {
    "limits": Scenario(3, 1),
    "job": Scenario(100, 12),
    "start": Scenario(15, 4),
    "restart": Scenario(60, 11),
    "warm": Scenario(130, 10),
    "crash": Scenario(25, 4),
    "faults": Scenario(360, 18),
    "rendezvous": Scenario(220, 12),
    "flood": Scenario(25, 9),
    "tee": Scenario(120, 6),
    "value": Scenario(40, 6),
    "worker_store": Scenario(80, 9),
    "footprint": Scenario(27, 4),
    "idle": Scenario(110, 12),
}

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEPT = os.path.join(_ROOT, "benchmarks", "results", "latest.json")
"""The results that the project shows."""

KEPT_PAGE = os.path.join(_ROOT, "docs", "_static", "benchmarks.html")
"""The same with plots, for the docs."""

SHOWN_IN = (os.path.join(_ROOT, "README.md"), os.path.join(_ROOT, "docs", "benchmarks.md"))
"""Texts with tables of the kept results."""

_CHANGES_WORKERS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME")
"""Settings of the caller's shell that would make the workers other programs than those described."""


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are: {', '.join(SCENARIOS)}")
    if options.source and (options.scenarios or options.quick or options.keep):
        parser.error("--from shows what was measured before: it goes with none of scenarios, --quick and --keep")
    failed: list[str] = []
    try:
        _require_places(options)
        if options.source:
            results = read(options.source)
        else:
            results, failed = _run(options.scenarios or list(SCENARIOS), options.quick)
    except (BenchmarkError, ResultsError, NoPlaceError) as error:
        print(error, file=sys.stderr)
        return 2
    _show(options, results, is_whole=not (options.quick or options.scenarios or failed))
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
        return 2
    return 1 if results.missed() else 0


def _require_places(options: argparse.Namespace) -> None:
    """Raises NoPlaceError: what is wrong with a path should not come out when all is measured."""
    for path in filter(None, (options.json, options.page)):
        directory = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(directory) or os.path.isdir(path):
            raise NoPlaceError(f"{path}: cannot be written: {directory} is no directory, or this is one")
    for path in options.into:
        try:
            with open(path, encoding="utf-8") as file:
                require_place(file.read())
        except (OSError, UnicodeDecodeError, NoPlaceError) as error:
            raise NoPlaceError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _show(options: argparse.Namespace, results: Results, *, is_whole: bool) -> None:
    print(f"{facts(results)}\n{HOW_TO_READ}\n\n{table(results)}")
    if missed := results.missed():
        print(f"\n{missed} target{'s' * (missed > 1)} MISSED")
    if options.json:
        _write(options.json, to_text(results))
    if options.page:
        _write(options.page, page(results))
    for path in options.into:
        _fill(path, results)
    if options.keep:
        _keep(results, is_whole=is_whole)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help=f"of {', '.join(SCENARIOS)}; all if none is given"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds and small sizes: under two minutes")
    parser.add_argument("--json", metavar="PATH", help="write every sample to this file")
    parser.add_argument("--page", metavar="PATH", help="write a page of HTML with plots")
    parser.add_argument(
        *("--into", "--readme"),
        dest="into",
        metavar="PATH",
        action="append",
        default=[],
        help="write the tables of this text anew, where it has places for them; may be repeated",
    )
    parser.add_argument("--from", dest="source", metavar="PATH", help="measure nothing: show what --json wrote")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="after a whole run, make its results those that the README and the docs show",
    )
    return parser


def _run(scenarios: Sequence[str], quick: bool) -> tuple[Results, list[str]]:
    """What was measured, and the scenarios that could not be."""
    if find_spec("torch") is None:
        raise BenchmarkError("this compares with torch, which is not installed: pip install torch==2.13.0")
    for name in _CHANGES_WORKERS:
        os.environ.pop(name, None)
    known = machine()
    with Workplace(quick=quick) as workplace:
        # What is run here is not listed among the runs of the person who measures.
        os.environ["XDG_STATE_HOME"] = workplace.path("state")
        measurements, failed = _measured(scenarios, workplace)
    return Results(known, quick, measurements), failed


def _measured(scenarios: Sequence[str], workplace: Workplace) -> tuple[list[Measurement], list[str]]:
    """One that fails does not cost the others."""
    expected_s = sum(SCENARIOS[name][workplace.quick] for name in scenarios)
    _say(f"{len(scenarios)} scenario{'s' * (len(scenarios) > 1)}, about {_length(expected_s)} on two quiet cores")
    measurements: list[Measurement] = []
    failed = []
    began = time.monotonic()
    for place, name in enumerate(scenarios, 1):
        _say(f"[{place}/{len(scenarios)}] {name} (about {_length(SCENARIOS[name][workplace.quick])}) …")
        since = time.monotonic()
        try:
            measurements += import_module(f"benchmarks.{name}").measure(workplace)
        except BenchmarkError as error:
            failed.append(name)
            _say(f"{name}: {error}")
        now = time.monotonic()
        _say(f"[{place}/{len(scenarios)}] {name}: {now - since:.0f} s, {_length(now - began)} in all")
    return measurements, failed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _keep(results: Results, *, is_whole: bool) -> None:
    if not is_whole:
        _say("not kept: only a whole run's results are shown in the README")
        return
    os.makedirs(os.path.dirname(KEPT), exist_ok=True)
    _write(KEPT, to_text(results))
    # As it will be read again, with as many digits as are kept.
    kept = read(KEPT)
    _write(KEPT_PAGE, page(kept))
    for path in SHOWN_IN:
        _fill(path, kept)
    _say(f"kept in {os.path.relpath(KEPT, _ROOT)}")


def _fill(path: str, results: Results) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    _write(path, filled(text, results))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
