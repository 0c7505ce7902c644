"""Every target, with what was found before and with a fixed number of inputs of one seed. `make fuzz` does more."""

from __future__ import annotations

from importlib import import_module

import pytest
from fuzz.examination import examine
from fuzz.loop import Loop, corpus_of
from fuzz.records import try_records
from fuzz.targets import MODULES

SEED = 1
RECORDS = 40


def targets_in(module):
    return import_module(f"fuzz.targets.{module}").TARGETS


@pytest.mark.parametrize("module", MODULES)
def test_what_was_found_before_is_repaired(module):
    for target in targets_in(module):
        for name, data in corpus_of(target).items():
            problem = examine(target, data, with_memory=True)
            assert problem is None, f"{target.name}, {name}: {problem.text}"


@pytest.mark.parametrize("module", MODULES)
def test_the_short_run_finds_nothing(module):
    for target in targets_in(module):
        print(f"{target.name}: seed {SEED}, {target.short_runs} inputs")
        loop = Loop(target, SEED)
        found = [*loop.first()]
        for _ in range(target.short_runs):
            found += loop.step()
        found += [each for each in [try_records(target, SEED, RECORDS)] if each is not None]
        assert not found, f"{target.name}, {found[0][0].hex()}: {found[0][1].text}"
        assert loop.lines, "it has run no line of holdfast"
