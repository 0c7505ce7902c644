from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.watchdog import FileTimerRequest
from holdfast.watchdog.timers import Timers, choose_signal


def table(*requests):
    timers = Timers()
    for request in requests:
        timers.register(FileTimerRequest(*request))
    return timers


def scopes(expired):
    return {pid: [timer.scope_id for timer in timers] for pid, timers in expired.items()}


def test_a_timer_expires_at_its_time():
    timers = table((1, "a", 10.0))
    assert timers.expired(9.999) == {}
    assert scopes(timers.expired(10.0)) == {1: ["a"]}


def test_the_earliest_is_first_and_processes_are_apart():
    timers = table((1, "late", 3.0), (1, "early", 1.0), (2, "other", 2.0), (1, "never", 100.0))
    assert scopes(timers.expired(5.0)) == {1: ["early", "late"], 2: ["other"]}
    assert timers.next_expiry() == 1.0


def test_set_again_it_has_the_new_time():
    timers = table((1, "a", 1.0), (1, "a", 5.0))
    assert len(timers) == 1
    assert timers.expired(1.0) == {}
    assert timers.next_expiry() == 5.0


def test_a_release_is_for_one_scope_of_one_process():
    timers = table((1, "a", 1.0), (1, "b", 1.0), (2, "a", 1.0), (1, "a", -1))
    assert (1, "a") not in timers
    assert (1, "b") in timers
    assert (2, "a") in timers


def test_what_is_not_set_can_be_released():
    timers = table((1, "a", -1))
    assert len(timers) == 0
    assert timers.pids() == set()


def test_clear_is_for_all_scopes_of_a_process():
    timers = table((1, "a", 1.0), (1, "b", 1.0), (2, "a", 2.0))
    timers.clear([1, 7])
    assert timers.pids() == {2}
    assert timers.next_expiry() == 2.0


def test_what_was_taken_does_not_expire_again():
    timers = table((1, "a", 1.0), (1, "b", 5.0))
    assert scopes(timers.take_expired(2.0)) == {1: ["a"]}
    assert timers.take_expired(2.0) == {}
    assert timers.next_expiry() == 5.0


def test_an_empty_table_has_no_expiry():
    assert Timers().next_expiry() is None


def test_the_first_timer_with_a_signal_decides():
    requests = [FileTimerRequest(1, name, 1.0, signal) for name, signal in [("a", 0), ("b", -5), ("c", 15), ("d", 9)]]
    assert choose_signal(requests).scope_id == "c"
    assert choose_signal(requests[:2]) is None


@given(st.lists(st.tuples(st.integers(2, 4), st.sampled_from("abc"), st.floats(-2, 10))), st.floats(0, 10))
def test_only_the_last_request_for_a_scope_counts(requests, now):
    timers = table(*requests)
    last = {(pid, scope): time for pid, scope, time in requests}
    standing = {key: time for key, time in last.items() if time >= 0}
    assert len(timers) == len(standing)
    assert timers.next_expiry() == min(standing.values(), default=None)
    due = {key for key, time in standing.items() if time <= now}
    taken = {(pid, timer.scope_id) for pid, found in timers.take_expired(now).items() for timer in found}
    assert taken == due
    assert len(timers) == len(standing) - len(due)
