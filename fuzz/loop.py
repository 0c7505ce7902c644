"""The loop: one mutation after the other, and those that reach new lines are kept to be mutated again."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from fuzz.examination import examine, lines_run
from fuzz.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.examination import Problem
    from fuzz.target import Target

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
"""Inputs that have found a defect, by target: each is run by the tests for ever."""

TRACE_EVERY = 8
"""One of so many inputs is traced, which takes about ten times as long."""

MEMORY_EVERY = 16
"""The memory of one of so many inputs is counted."""

POOL_MAX = 2_000
"""How many inputs are kept to be mutated."""


def corpus_of(target: Target) -> dict[str, bytes]:
    """The inputs that were found before, by their file's name."""
    directory = os.path.join(CORPUS, target.name)
    if not os.path.isdir(directory):
        return {}
    found = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            found[name] = file.read()
    return found


class Loop:
    """Inputs for one target. The same seed makes the same inputs."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._chance = random.Random(f"{seed} {target.name}")
        self._pool = [*target.seeds(), *corpus_of(target).values()]
        self._lines: set[tuple[str, int]] = set()
        self.runs = 0

    @property
    def lines(self) -> int:
        """How many lines of the code were reached, as far as that was looked at."""
        return len(self._lines)

    def first(self) -> Iterator[tuple[bytes, Problem]]:
        """Run what is there to begin with."""
        for data in list(self._pool):
            yield from self._run(data, is_traced=True, with_memory=True)

    def step(self) -> Iterator[tuple[bytes, Problem]]:
        """Run one more input."""
        data = mutated(self._chance.choice(self._pool), self._chance, self._target.shape, self._pool)
        is_traced = self.runs % TRACE_EVERY == 0
        yield from self._run(data, is_traced=is_traced, with_memory=self.runs % MEMORY_EVERY == 1)

    def _run(self, data: bytes, *, is_traced: bool, with_memory: bool) -> Iterator[tuple[bytes, Problem]]:
        self.runs += 1
        problem = examine(self._target, data, with_memory=with_memory)
        if problem is not None:
            yield data, problem
        elif is_traced:
            reached = lines_run(self._target, data)
            if not reached <= self._lines:
                self._lines |= reached
                if len(self._pool) < POOL_MAX:
                    self._pool.append(data)
