"""When nodes are let into a job that runs: batches, machines that come and go, and when to give up on one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rendezvous.admission import (
    BATCH_MAX_S,
    BATCH_S,
    HOLD_BACK_MAX_S,
    HOLD_BACK_S,
    HOSTS_MAX,
    LOSSES_FREE,
    LOSSES_MAX,
    admits_at,
    batch_s,
    hold_back_s,
    lost_too_often,
    remember,
)
from holdfast.rendezvous.records import Arrivals
from holdfast.rendezvous.restarts import STEADY_S

COUNTS = st.integers(0, 10_000)


def after(arrivals=Arrivals(), *gone, here=None, has_joined=False, ran_s=1.0):  # noqa: B008 - it is immutable
    return remember(arrivals, gone, here or {}, has_joined=has_joined, ran_s=ran_s, steady_s=STEADY_S)


def test_newcomers_wait_longer_for_each_other_the_more_often_the_job_was_disturbed_for_them():
    assert [batch_s(joins) for joins in range(3)] == [BATCH_S, 2 * BATCH_S, 4 * BATCH_S]


@given(COUNTS)
def test_no_wait_is_longer_than_its_limit_or_shorter_than_the_one_before(count):
    assert batch_s(count) <= batch_s(count + 1) <= BATCH_MAX_S
    assert hold_back_s(count) <= hold_back_s(count + 1) <= HOLD_BACK_MAX_S


def test_a_machine_that_was_lost_is_let_in_at_once_the_first_time_and_held_back_longer_each_time_after_that():
    waits = [hold_back_s(losses) for losses in range(LOSSES_FREE + 4)]
    assert waits == [0.0] * (LOSSES_FREE + 1) + [HOLD_BACK_S, 2 * HOLD_BACK_S, 4 * HOLD_BACK_S]


def test_each_newcomer_is_let_in_by_its_own_past():
    arrivals = Arrivals(losses=(("bad", LOSSES_FREE + 1),))
    at = admits_at(arrivals, {"b.1": "bad", "g.1": "good"}, {"b.1": 10.0, "g.1": 10.0}, lease_s=3.0)
    assert at == {"b.1": 10.0 + HOLD_BACK_S + 3.0, "g.1": 10.0}


def test_losses_are_counted_by_machine_and_start_again_with_one_that_has_stayed():
    once = after(Arrivals(), ("a", 3.0), ("b", 3.0))
    twice = after(once, ("a", 3.0))
    assert dict(twice.losses) == {"a": 2, "b": 1}
    assert dict(after(twice, ("a", STEADY_S)).losses) == {"a": 1, "b": 1}


def test_a_machine_that_is_here_and_stays_has_a_clean_slate():
    bad = Arrivals(losses=(("a", 3), ("b", 3)))
    assert dict(after(bad, here={"a": STEADY_S, "b": STEADY_S - 1}).losses) == {"b": 3}


def test_joins_in_a_row_are_counted_until_a_generation_runs_steadily():
    once = after(has_joined=True)
    assert (once.joins, after(once, has_joined=True).joins, after(once).joins) == (1, 2, 1)
    assert after(once, has_joined=True, ran_s=STEADY_S).joins == 1
    assert after(once, ran_s=STEADY_S).joins == 0


def test_a_machine_is_given_up_after_its_last_loss_if_it_is_one_of_ours():
    arrivals = Arrivals(losses=(("a", LOSSES_MAX), ("b", LOSSES_MAX - 1)))
    assert lost_too_often(arrivals, ["b", "a"]) == "a"
    assert lost_too_often(arrivals, ["b", "c"]) == ""


def test_what_is_remembered_has_a_limit_and_the_worst_stay():
    many = [(f"h{number}", 1.0) for number in range(HOSTS_MAX + 10)]
    full = after(Arrivals(losses=(("worst", 9),)), *many)
    assert len(full.losses) == HOSTS_MAX
    assert full.losses[0] == ("worst", 9)
