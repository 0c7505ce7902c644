"""One target under atheris, where that is installed: libFuzzer looks for new branches, our mutations make the inputs.

`python -m fuzz.with_atheris NAME SECONDS SEED DIRECTORY` is a process of its own: libFuzzer never gives one back. An
input that raises is left in the directory, as ``crash-...``.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from fuzz.mutations import mutated
from fuzz.target import INPUT_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.target import Target

ONE_INPUT_MAX_S = 60
"""How long one input may take; what takes longer is left as ``timeout-...``."""

START_MAX_S = 120
"""How long the process may take beside its time, to import all with counters in it and to end."""


def is_installed() -> bool:
    return importlib.util.find_spec("atheris") is not None


def inputs_found(target: Target, seconds: float, seed: int) -> Iterator[bytes]:
    """The inputs that atheris leaves after so long, if any. The first that raises ends it."""
    with tempfile.TemporaryDirectory() as directory:
        for number, data in enumerate(target.seeds()):
            with open(os.path.join(directory, f"seed-{number}"), "wb") as file:
                file.write(data)
        words = [target.name, str(max(1, int(seconds))), str(seed), directory]
        subprocess.run(
            [sys.executable, "-m", "fuzz.with_atheris", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds + START_MAX_S,
            check=False,
        )
        for name in sorted(os.listdir(directory)):
            if name.startswith(("crash-", "timeout-", "oom-")):
                with open(os.path.join(directory, name), "rb") as file:
                    yield file.read()


def main(name: str, seconds: str, seed: str, directory: str) -> None:
    """Be that process."""
    import atheris

    with atheris.instrument_imports(include=["holdfast"]):
        from fuzz.targets import all_targets

        target = all_targets()[name]
    seeds = list(target.seeds())

    def mutate(data: bytes, size_max: int, number: int) -> bytes:
        chance = random.Random(number)
        if chance.random() < 0.3:
            made: bytes = atheris.Mutate(data, len(data))
            return made
        return mutated(data, chance, target.shape, seeds)[:size_max]

    options = [
        f"-max_total_time={seconds}",
        f"-seed={int(seed) + 1}",  # 0 is any
        f"-max_len={INPUT_MAX_BYTES}",
        f"-artifact_prefix={directory}/",
        f"-timeout={ONE_INPUT_MAX_S}",
        "-print_final_stats=1",
    ]
    atheris.Setup(["fuzz", *options, directory], target.run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
