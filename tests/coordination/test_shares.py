"""Who may have how many of something that there is a limit of."""

from __future__ import annotations

import pytest

from holdfast.coordination.shares import Shares


def take_all(shares, source):
    count = 0
    while shares.has_room(source):
        shares.take(source)
        count += 1
    return count


@pytest.mark.parametrize(("sources", "left"), [(1, 512), (2, 256), (6, 16), (200, 0)])
def test_each_that_takes_all_that_it_gets_leaves_half_of_what_it_found(sources, left):
    shares = Shares(1024)
    for number in range(sources):
        take_all(shares, f"10.0.0.{number}")
    assert shares.taken == 1024 - left
    assert shares.has_room("a fresh one") == (left > 0)


def test_sources_that_take_turns_get_the_same_and_leave_as_much():
    shares = Shares(300)
    while shares.has_room("a") or shares.has_room("b"):
        for source in "ab":
            if shares.has_room(source):
                shares.take(source)
    assert (shares.of("a"), shares.of("b"), shares.taken) == (100, 100, 200)
    assert take_all(shares, "c") == 50


def test_what_is_given_back_is_there_for_others():
    shares = Shares(2)
    shares.take("a")
    assert not shares.has_room("a")
    assert shares.has_room("b")
    shares.give_back("a")
    assert (shares.taken, shares.of("a"), shares.has_room("a")) == (0, 0, True)
