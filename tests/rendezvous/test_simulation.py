"""Worlds in which everything goes wrong, by seed. One that fails prints the command that replays it line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import simulated_storms
from simulated_crowd import Crowd, grows_with_the_nodes
from simulated_storms import FAULTS_S, MIXES, NOT_YET, replay_command, run

SEEDS = 225
"""Of each kind of weather; with 32 kinds, about 7,000 worlds."""

SEEDS_LONG = 75
"""Of weather that goes on for long."""


def kinds():
    for mix in MIXES:
        skip = pytest.mark.skip(reason=f"not yet: {NOT_YET[mix]}") if mix in NOT_YET else ()
        yield pytest.param(mix, marks=skip)


@pytest.mark.parametrize("mix", list(kinds()))
def test_every_world_keeps_the_laws_and_comes_to_its_end(mix):
    for seed in range(SEEDS if MIXES[mix].faults_s == FAULTS_S else SEEDS_LONG):
        try:
            run(mix, seed)
        except Exception as error:
            pytest.fail(f"{error!r}\nreplay it with: {replay_command(mix, seed)}")


def test_a_seed_is_the_same_world_in_every_process():
    command = [sys.executable, simulated_storms.__file__, "--mix", "storm", "--seed", "7"]
    traces = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=True, timeout=120
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(traces) == 1
    assert b"generation 1" in traces.pop()


def test_what_the_product_does_not_do_yet_is_a_known_kind_of_weather():
    assert not NOT_YET.keys() - MIXES.keys()


def test_a_replay_command_names_a_file_that_is_there():
    assert (Path(__file__).parents[2] / replay_command("storm", 7).split()[1]).is_file()


def test_messages_grow_with_the_number_of_nodes_and_not_with_its_square():
    small, large = Crowd(200, seed=1).live(), Crowd(2_000, seed=1).live()
    assert grows_with_the_nodes(small, large), (small.phases, large.phases)
    assert large.messages < 27 * 2_000
