"""Medians, ratios and verdicts."""

from __future__ import annotations

import pytest
from benchmarks.measuring import Measurement, Spread, Target, in_turns
from benchmarks.topics import CRASH


def measured(samples, targets=(), **more):
    return Measurement("something", "s", samples, targets, topic=CRASH, **more)


def test_contestants_are_asked_in_turns():
    asked = []

    def contestant(name):
        return lambda number: asked.append((name, number))

    in_turns(2, {"a": contestant("a"), "b": contestant("b")})
    assert asked == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("answers", "asked"), [([9, 9, 9], 2), ([1, 9, 9], 3), ([9, 1, 9], 3), ([1, 1, 9], 3), ([9, 9, 1], 2)]
)
def test_who_was_hopeless_in_most_rounds_is_not_asked_again(answers, asked):
    found = in_turns(3, {"a": answers.__getitem__, "b": lambda _: 0}, is_hopeless=lambda answer: answer == 9)
    assert found == {"a": answers[:asked], "b": [0, 0, 0]}


def test_a_single_round_that_was_hopeless_counts():
    assert in_turns(1, {"a": lambda _: 9}, is_hopeless=lambda answer: answer == 9) == {"a": [9]}


def test_a_spread_is_a_median_with_its_quartiles():
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)
    assert Spread.of([7.0]) == (7.0, 7.0, 7.0)


def test_a_ratio_is_taken_round_by_round():
    # The machine was ten times slower in the second round: neither ratio of medians nor of means would see 1/2.
    each = measured({"holdfast": [[1.0], [10.0], [1.0]], "torch": [[2.0], [20.0], [2.0]]})
    assert each.ratio("holdfast", "torch") == (0.5, 0.5, 0.5)


def test_a_ratio_uses_the_rounds_that_both_have():
    each = measured({"holdfast": [[1.0], [1.0], [9.0]], "torch": [[10.0]]})
    assert each.ratio("holdfast", "torch").median == 0.1


def test_there_is_no_ratio_to_nothing():
    assert measured({"holdfast": [[1.0]]}).ratio("holdfast", "torch") is None
    assert measured({"holdfast": [[1.0]], "torch": [[0.0]]}).ratio("holdfast", "torch") is None
    assert measured({"holdfast": [[1.0]]}).spread("torch") is None


def test_who_is_neither_of_both_is_the_limit():
    assert measured({"holdfast": [[1.0]], "torch": [[1.0]], "fork": [[0.1]]}).limit() == "fork"
    assert measured({"holdfast": [[1.0]]}).limit() == ""


@pytest.mark.parametrize(
    ("target", "value", "is_met"),
    [
        (Target(2.0, at_most=True), 2.0, True),
        (Target(1.9, at_most=True), 2.0, False),
        (Target(2.0, at_most=False), 2.0, True),
        (Target(0.5, at_most=True, against="torch"), 0.5, True),
        (Target(0.4, at_most=True, against="torch"), 0.5, False),
        (Target(2.1, at_most=False, against="fork"), 2.0, False),
    ],
)
def test_a_verdict_compares_the_median_or_the_ratio_with_the_bound(target, value, is_met):
    each = measured({"holdfast": [[1.0], [2.0], [3.0]], "torch": [[2.0], [4.0], [6.0]], "fork": [[0.5], [1.0], [1.5]]})
    assert measured(each.samples, [target]).verdicts() == [(target, value, is_met)]


def test_a_median_at_the_ceiling_is_unfinished():
    each = measured({"holdfast": [[1.0], [20.0], [1.0]], "torch": [[20.0], [20.0], [3.0]]}, ceiling=20.0)
    assert (each.is_unfinished("holdfast"), each.is_unfinished("torch"), each.is_unfinished("fork")) == (
        False,
        True,
        False,
    )
    assert not measured({"holdfast": [[1e9]]}).is_unfinished("holdfast")
