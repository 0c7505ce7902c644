"""Whether a job is started again, failure by failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ProcessFailure
from holdfast.errors.diagnosis import Evidence
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.restarts import (
    FAST_S,
    NODE_FAULTS_MAX,
    PAUSE_MAX_S,
    STEADY_S,
    Fault,
    Past,
    failure_signature,
    hopeless,
    rule,
)
from holdfast.settings import ALWAYS, RestartLimits

EXCEPTION, KILLED = FailureKind.EXCEPTION, FailureKind.KILLED


def story(*faults, limits=None):
    """The rulings on one fault after the other, up to the first that ends the job."""
    past, rulings = Past(), []
    for fault in faults:
        ruling = rule(past, fault, limits or RestartLimits(max_restarts=10))
        rulings.append(ruling)
        if not ruling.restarts:
            break
        past = ruling.past
    return rulings


def test_the_budget_is_kept():
    faults = [Fault(FailureKind.EXIT, 1.0)] * 10
    rulings = story(*faults, limits=RestartLimits(max_restarts=2))
    assert [ruling.restarts for ruling in rulings] == [True, True, False]
    assert rulings[-1].reason == "restarts: 2 of 2"
    assert not rulings[-1].is_early


def test_what_cannot_go_away_is_not_tried_again():
    (ruling,) = story(Fault(EXCEPTION, 1.0, hopeless="a syntax error"))
    assert ruling.reason == "not restarted: a syntax error"
    assert ruling.is_early


def test_twice_at_the_same_line_is_enough():
    there, elsewhere = Fault(EXCEPTION, 1.0, "ValueError at a.py:1"), Fault(EXCEPTION, 1.0, "ValueError at b.py:1")
    assert [ruling.restarts for ruling in story(there, there)] == [True, False]
    assert len(story(there, elsewhere, there, elsewhere)) == 4
    assert all(ruling.restarts for ruling in story(there, elsewhere, there, elsewhere))


@pytest.mark.parametrize(
    "name", ["OSError", "requests.exceptions.ReadTimeout", "huggingface_hub.errors.HfHubHTTPError"]
)
def test_what_the_world_outside_does_is_no_place(name):
    assert failure_signature(EXCEPTION, name, "a.py:1", 1.0) == ""
    assert failure_signature(EXCEPTION, "FileNotFoundError", "a.py:1", 1.0) == "FileNotFoundError at a.py:1"


def test_always_means_always():
    always = RestartLimits(3, policy=ALWAYS)
    faults = [Fault(EXCEPTION, 0.1, "ValueError at a.py:1", "a syntax error", "node")] * 5
    rulings = story(*faults, limits=always)
    assert [ruling.restarts for ruling in rulings] == [True, True, True, False]
    assert all(ruling.pause_s == 0 and not ruling.past.left_out for ruling in rulings)


def test_a_window_gives_the_budget_back():
    limits = RestartLimits(1, window_s=100.0)
    short, long = Fault(FailureKind.EXIT, 99.0), Fault(FailureKind.EXIT, 100.0)
    assert [ruling.restarts for ruling in story(short, long, long, long, short, limits=limits)] == [True] * 4 + [False]


def test_pauses_grow_with_faults_in_a_row_and_end_with_steady_work():
    killed = Fault(KILLED, 1.0)
    pauses = [ruling.pause_s for ruling in story(*[killed] * 10)]
    assert pauses[:5] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert max(pauses) == PAUSE_MAX_S
    rulings = story(killed, killed, Fault(KILLED, STEADY_S), killed)
    assert [ruling.pause_s for ruling in rulings] == [0.0, 0.5, 0.0, 0.5]
    assert [ruling.pause_s for ruling in story(killed, Fault(EXCEPTION, 1.0), killed)] == [0.0, 0.0, 0.0]


def test_a_node_that_is_to_blame_again_and_again_is_left_out():
    bad, other = Fault(FailureKind.EXIT, 1.0, node="bad"), Fault(FailureKind.EXIT, 1.0, node="other")
    assert story(*[bad] * NODE_FAULTS_MAX)[-1].past.left_out == ("bad",)
    assert story(*[bad] * (NODE_FAULTS_MAX - 1))[-1].past.left_out == ()
    assert story(bad, bad, other, bad, bad)[-1].past.left_out == ()
    steady = Fault(FailureKind.EXIT, STEADY_S, node="bad")
    assert story(bad, bad, steady, bad)[-1].past.left_out == ()


@pytest.mark.parametrize("name", ["SyntaxError", "IndentationError", "TabError", "ModuleNotFoundError"])
def test_hopeless_exceptions(name):
    failure = ProcessFailure(
        0, 1, 1, "", evidence=Evidence(stderr=f'Traceback (most recent call last):\n  File "a"\n{name}: x\n')
    )
    assert failure.exception == name
    assert hopeless(failure)


def test_a_syntax_error_in_what_eval_was_given_is_not_hopeless():
    text = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    eval("1 +")
  File "<string>", line 1
    1 +
       ^
SyntaxError: invalid syntax
"""
    failure = ProcessFailure(0, 1, 1, "", evidence=Evidence(stderr=text))
    assert failure.exception == "SyntaxError"
    assert not hopeless(failure)


def test_arguments_that_were_refused_are_hopeless():
    assert hopeless(ProcessFailure(0, 1, 2, "", evidence=Evidence(stderr="usage: a\na: error: b\n")))
    assert not hopeless(ProcessFailure(0, 1, 2, ""))


def test_only_an_exception_of_the_program_itself_within_seconds_has_a_place():
    assert failure_signature(EXCEPTION, "ValueError", "a.py:1 in f", 1.0) == "ValueError at a.py:1 in f"
    assert failure_signature(EXCEPTION, "ValueError", "a.py:1 in f", FAST_S) == ""
    assert failure_signature(EXCEPTION, "requests.HTTPError", "a.py:1 in f", 1.0) == ""
    assert failure_signature(EXCEPTION, "ValueError", "", 1.0) == ""
    assert failure_signature(KILLED, "", "a.py:1 in f", 1.0) == ""


FAULTS = st.builds(
    Fault,
    st.sampled_from(FailureKind),
    st.floats(0, 1e6),
    st.sampled_from(["", "E at a", "E at b"]),
    st.sampled_from(["", "why"]),
    st.sampled_from(["", "a", "b"]),
)


@given(
    st.lists(FAULTS, max_size=50), st.integers(0, 5), st.sampled_from([0.0, 10.0]), st.sampled_from(["auto", ALWAYS])
)
def test_without_a_window_there_are_never_more_restarts_than_allowed(faults, most, window_s, policy):
    rulings = story(*faults, limits=RestartLimits(most, window_s, policy))
    for ruling in rulings:
        assert ruling.past.spent <= most
        assert ruling.restarts != bool(ruling.reason)
    if not window_s:
        assert sum(ruling.restarts for ruling in rulings) <= most
