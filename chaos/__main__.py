"""A seeded storm of faults over a real training on four nodes, and a proof from what was seen that nothing went wrong.

Exit code 0 if the storm was weathered, 1 if the checker found something, 2 if this machine cannot do it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from chaos.checker import Transcript, broken_laws
from chaos.course import Course, gather
from chaos.faults import possible, slow_how
from chaos.kinds import ADD_NODE, KINDS
from chaos.record import read
from chaos.result import compare
from chaos.storm import plan
from chaos.summary import summary, table
from chaos.world import ChaosError, World, remove

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED_MAX = 10**6


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    if options.check:
        with open(options.check) as file:
            return _judge(read(file), options.json)
    lacking = _lacking(options.backend)
    if lacking:
        print(f"chaos: {lacking}", file=sys.stderr)
        return 2
    seed = random.randrange(SEED_MAX) if options.seed is None else options.seed
    can, cannot = possible(options.backend)
    if options.only:
        only = {ADD_NODE, *options.only.split(",")}
        if unknown := only - can.keys():
            print(f"chaos: no fault {', '.join(sorted(unknown))} here; there are: {', '.join(can)}", file=sys.stderr)
            return 2
        can = {name: text for name, text in can.items() if name in only}
    else:
        can = {name: text for name, text in can.items() if KINDS[name].is_covered}
    replay = f"make chaos SEED={seed} FAULTS={options.faults} BACKEND={options.backend}"
    replay += f" ONLY={options.only}" if options.only else ""
    print(f"storm {seed}: {options.faults} faults, nodes meet in {options.backend}; again with: {replay}")
    print("\n".join(f"  can     {name}: {text}" for name, text in can.items()))
    print("\n".join(f"  cannot  {name}: {why}" for name, why in cannot.items()), flush=True)
    return _storm(options, seed, frozenset(can), replay)


def _storm(options: argparse.Namespace, seed: int, can: frozenset[str], replay: str) -> int:
    began = time.monotonic()
    world = World(plan(seed, options.faults, options.backend, can), seed, options.backend)
    code = 1
    try:
        with world:
            try:
                Course(world, slow_how(), lambda line: print(line, flush=True)).run()
            except ChaosError as error:
                print(f"{error}\n{world.describe()}", file=sys.stderr)
            gather(world)
            compare(world.record, world.history.parent)
        code = _judge(world.record.entries, options.json)
        print(f"{time.monotonic() - began:.0f} s")
    finally:
        if code:
            print(f"what was seen is in {world.directory}\nreplay with: {replay}", file=sys.stderr)
        elif not options.keep:
            remove(world.directory)
    return code


def _judge(entries: list[dict[str, object]], json_path: str | None) -> int:
    transcript = Transcript(entries)
    found = broken_laws(transcript)
    numbers = summary(transcript, found)
    for problem in found:
        print(f"VIOLATION  {problem}")
    print(table(numbers))
    print("nothing went wrong" if not found else f"{len(found)} violation{'s' * (len(found) > 1)}")
    if json_path:
        with open(json_path, "w") as file:
            json.dump(numbers, file, indent=2)
    return 1 if found else 0


def _lacking(backend: str) -> str:
    """What this machine lacks for a storm, in words."""
    if os.geteuid() != 0:
        return "network namespaces and disks of its own need root"
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("mount", "mount")):
        if shutil.which(program) is None:
            return f"the program {program} is missing (package {package})"
    if backend == "etcd" and shutil.which("etcd") is None:
        return "etcd is missing (package etcd-server); BACKEND=c10d does without"
    return "" if importlib.util.find_spec("torch") else "torch is missing: pip install torch==2.13.0"


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count}: one fault is the least")
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="the storm; a random one without it")
    parser.add_argument("--faults", type=_count, default=20, help="how many")
    parser.add_argument("--backend", choices=("etcd", "c10d"), default="etcd", help="where the nodes meet")
    parser.add_argument("--only", metavar="FAULT,...", help="only these kinds of faults")
    parser.add_argument("--keep", action="store_true", help="keep what was seen, also of a storm that was weathered")
    parser.add_argument("--json", metavar="PATH", help="write faults, restarts, losses and violations there")
    parser.add_argument("--check", metavar="PATH", help="no storm: check the record.jsonl of an earlier one again")
    return parser


if __name__ == "__main__":
    # Whoever ends a storm wants its nodes gone, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
