"""Fuzz everything that takes bytes or text from outside, for a while.

Exit code 0 if nothing was found, 1 if something was, 2 for bad input.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import TYPE_CHECKING

from fuzz.campaign import fuzz, table
from fuzz.examination import examine
from fuzz.targets import all_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuzz.target import Target

SEED_MAX = 10**6


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    targets = all_targets()
    if options.target:
        if options.target not in targets:
            print(f"fuzz: no target {options.target!r}; there are: {', '.join(targets)}", file=sys.stderr)
            return 2
        targets = {options.target: targets[options.target]}
    if options.input:
        return _replay(list(targets.values()), options.input)
    seed = random.randrange(SEED_MAX) if options.seed is None else options.seed
    each_s = options.seconds / len(targets)
    print(f"seed {seed}: {len(targets)} targets, {each_s:.0f} s each; again with: make fuzz SEED={seed}", flush=True)
    results = []
    for target in targets.values():
        print(f"{target.name} ...", flush=True)
        results.append(fuzz(target, seed, each_s, _tell))
    print(f"\n{table(results)}")
    return 1 if any(result.found for result in results) else 0


def _replay(targets: list[Target], path: str) -> int:
    if len(targets) != 1:
        print(f"fuzz: --input {path!r}: say which --target it is for", file=sys.stderr)
        return 2
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        print(f"fuzz: --input {path!r}: {error.strerror}", file=sys.stderr)
        return 2
    problem = examine(targets[0], data, with_memory=True)
    if problem is None:
        print(f"{targets[0].name}: nothing is wrong with these {len(data)} bytes")
        return 0
    print(f"{targets[0].name}: {problem.signature}\n{problem.text}")
    return 1


def _tell(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long it takes in all (default: 600)")
    parser.add_argument("--seed", type=int, help="where the chance comes from (default: another one each time)")
    parser.add_argument("--target", help="fuzz this one alone")
    parser.add_argument("--input", help="run this file's bytes through the target, and say what comes of it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
