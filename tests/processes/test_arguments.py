"""Bad arguments are named, with what is wrong."""

from __future__ import annotations

import math

import pytest

from holdfast.errors import InputError
from holdfast.processes.arguments import check_ranks, check_seconds, check_text, environment


def test_ranks_are_complete_or_the_missing_one_is_named():
    check_ranks("set", args={1: (), 0: ()}, envs={0: {}, 1: {}})
    with pytest.raises(InputError, match="set: envs has no rank 1; 2 processes need ranks 0 to 1, but it has 0"):
        check_ranks("set", args={0: (), 1: ()}, envs={0: {}})
    with pytest.raises(RuntimeError, match="args and envs are empty"):
        check_ranks("set", args={}, envs={})


@pytest.mark.parametrize(("text", "problem"), [(7, "7 is not a str"), ("a\0b", "contains a zero byte")])
def test_text_for_a_program_is_a_string_without_zero_bytes(text, problem):
    with pytest.raises(InputError, match=rf"word: .*{problem}"):
        check_text("word", text)


@pytest.mark.parametrize("seconds", [-1, -math.inf, math.nan])
def test_a_wait_is_a_number_of_seconds_that_is_not_negative(seconds):
    assert check_seconds("wait", math.inf) == math.inf
    assert check_seconds("wait", 0) == 0
    with pytest.raises(InputError, match=r"wait=.*: must be 0 seconds or more"):
        check_seconds("wait", seconds)


def test_a_processs_environment_is_this_ones_with_additions(monkeypatch):
    monkeypatch.setenv("OF_ALL", "kept")
    monkeypatch.setenv("OF_BOTH", "before")
    env = environment("set", 0, {"OF_BOTH": "after", "OF_ONE": "new"})
    assert (env["OF_ALL"], env["OF_BOTH"], env["OF_ONE"]) == ("kept", "after", "new")


@pytest.mark.parametrize("additions", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "\0"}, {"A": 1}, {1: "x"}])
def test_an_environment_that_no_program_can_have_is_refused(additions):
    with pytest.raises(InputError, match="set: rank 3: "):
        environment("set", 3, additions)
