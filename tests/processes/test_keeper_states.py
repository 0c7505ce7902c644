"""The life of a set, walked through without a process: phases, deadlines, and what the keeper is told to do."""

from __future__ import annotations

import itertools
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.processes.keeper_states import (
    CONSOLE_PATIENCE_S,
    ENDED,
    HAVE_PROCESSES,
    HEED_FENCE,
    HURRYING,
    KILL,
    KILL_WAIT_S,
    KILLED_CONSOLE_PATIENCE_S,
    KILLING,
    LEFTOVER_GRACE_S,
    LEFTOVERS,
    RULES,
    RUNNING,
    SHOWING,
    SIGNAL_CHILDREN,
    SIGNAL_WORKERS,
    STOPPING,
    STUCK,
    TELL_FENCED,
    TELL_STOPPING,
    TELL_STOPPING_ALL,
    TELL_STUCK,
    AgentDied,
    AllGone,
    AllShown,
    ChildrenChanged,
    DeadlinePassed,
    FencePassed,
    Life,
    Stop,
    WorkerExited,
)

TERM, INT, SIGKILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL


def walk(*steps):
    """A life after (time, event) steps, and the effects of the last one."""
    life, effects = Life(), []
    for now, event in steps:
        effects = life.step(event, now)
    return life, effects


def stopped(workers=2, grace_s=30.0):
    return (100.0, Stop(TERM, grace_s, workers))


def test_a_set_that_ends_by_itself_waits_for_its_console_as_long_as_it_takes():
    life, _ = walk((1.0, WorkerExited(0)), (2.0, AllGone()))
    assert (life.phase, life.deadline, life.ended_well) == (SHOWING, float("inf"), True)
    assert life.step(AllShown(), 3.0) == []
    assert (life.phase, life.deadline) == (ENDED, None)


def test_a_set_that_failed_has_limited_patience_with_its_console():
    life, _ = walk((1.0, WorkerExited(1)), (2.0, WorkerExited(0)), (3.0, AllGone()))
    assert (life.phase, life.deadline) == (SHOWING, 3.0 + CONSOLE_PATIENCE_S)


def test_a_stop_is_told_signalled_and_has_one_deadline():
    life, effects = walk(stopped())
    assert effects == [(TELL_STOPPING, 0), (SIGNAL_WORKERS, TERM)]
    assert (life.phase, life.deadline, life.ended_well) == (STOPPING, 130.0, False)
    assert life.step(ChildrenChanged(1), 101.0) == []
    assert life.phase == STOPPING


def test_a_second_stop_can_only_make_the_deadline_earlier():
    life, effects = walk(stopped(), (101.0, Stop(INT, 1000.0, 2)))
    assert effects == [(SIGNAL_WORKERS, INT)], "it is told once"
    assert life.deadline == 130.0
    life.step(Stop(TERM, 0.0, 2), 102.0)
    assert life.deadline == 102.0


def test_what_workers_leave_gets_the_same_signal_and_a_short_grace():
    life, effects = walk(stopped(), (110.0, ChildrenChanged(0)))
    assert effects == [(SIGNAL_CHILDREN, TERM)]
    assert (life.phase, life.deadline) == (LEFTOVERS, 110.0 + LEFTOVER_GRACE_S)
    assert life.step(ChildrenChanged(0), 110.5) == [(SIGNAL_CHILDREN, TERM)], "those adopted since"
    assert life.deadline == 110.0 + LEFTOVER_GRACE_S, "the grace does not begin again"
    assert life.step(Stop(INT, 30.0, 0), 110.6) == [(SIGNAL_CHILDREN, INT)]


def test_a_stop_when_only_leftovers_are_there_leaves_a_good_end_good():
    life, effects = walk((1.0, WorkerExited(0)), stopped(workers=0))
    assert effects == [(TELL_STOPPING, 0), (SIGNAL_CHILDREN, TERM)]
    assert (life.phase, life.ended_well) == (LEFTOVERS, True)


@pytest.mark.parametrize("steps", [[stopped()], [stopped(), (101.0, ChildrenChanged(0))]])
def test_who_outlives_the_grace_is_killed_and_in_the_end_named(steps):
    life, effects = walk(*steps, (130.0, DeadlinePassed()))
    assert effects == [(KILL, SIGKILL)]
    assert (life.phase, life.deadline) == (KILLING, 130.0 + KILL_WAIT_S)
    assert life.step(ChildrenChanged(1), 131.0) == [(SIGNAL_CHILDREN, SIGKILL)]
    assert life.step(DeadlinePassed(), 140.0) == [(TELL_STUCK, 0)]
    assert (life.phase, life.deadline) == (STUCK, None), "nothing more is due"
    assert life.step(ChildrenChanged(0), 141.0) == [(SIGNAL_CHILDREN, SIGKILL)]
    life.step(AllGone(), 142.0)
    assert life.phase == HURRYING


def test_a_fence_ends_a_set_without_grace_and_says_so():
    life, effects = walk((5.0, FencePassed()))
    assert effects == [(TELL_STOPPING_ALL, 0), (KILL, SIGKILL), (TELL_FENCED, 0)]
    assert (life.phase, life.deadline) == (KILLING, 5.0 + KILL_WAIT_S)


def test_a_fence_kills_before_it_is_told():
    """The agent's guard of the fence ends when it is told, and the keeper may be stopped in between."""
    _, effects = walk((5.0, FencePassed()))
    kinds = [kind for kind, _ in effects]
    assert kinds.index(KILL) < kinds.index(TELL_FENCED)


def test_a_fence_in_a_stop_does_not_tell_it_again():
    _, effects = walk(stopped(), (101.0, FencePassed()))
    assert effects == [(KILL, SIGKILL), (TELL_FENCED, 0)]


@pytest.mark.parametrize("steps", [[], [stopped()], [stopped(), (101.0, ChildrenChanged(0))]])
def test_without_an_agent_there_is_no_grace(steps):
    life, effects = walk(*steps, (200.0, AgentDied()))
    assert effects == [(KILL, SIGKILL)]
    assert (life.phase, life.deadline) == (KILLING, 200.0 + KILL_WAIT_S)


def test_a_killed_set_gives_its_console_one_short_wait_whatever_it_shows():
    life, _ = walk((5.0, AgentDied()), (6.0, AllGone()))
    assert (life.phase, life.deadline) == (HURRYING, 6.0 + KILLED_CONSOLE_PATIENCE_S)
    assert life.step(Stop(TERM, 1000.0, 0), 6.5) == []
    assert life.deadline == 6.0 + KILLED_CONSOLE_PATIENCE_S
    life.step(DeadlinePassed(shown_bytes=10**6), 7.0)
    assert life.phase == ENDED


def test_a_console_that_goes_on_has_another_patience_and_one_that_stands_has_none():
    life, _ = walk((1.0, WorkerExited(1)), (2.0, AllGone(7)), (7.0, DeadlinePassed(shown_bytes=10)))
    assert (life.phase, life.deadline) == (SHOWING, 7.0 + CONSOLE_PATIENCE_S)
    life.step(DeadlinePassed(shown_bytes=10), 12.0)
    assert life.phase == ENDED


def test_what_the_console_took_before_the_end_is_no_sign_of_life():
    life, _ = walk((1.0, WorkerExited(1)), (2.0, AllGone(10)), (7.0, DeadlinePassed(shown_bytes=10)))
    assert life.phase == ENDED


def test_the_first_stop_of_a_set_that_ended_well_leaves_its_console_alone_and_the_second_does_not():
    life, _ = walk((1.0, WorkerExited(0)), (2.0, AllGone()), (3.0, Stop(TERM, 30.0, 0)))
    assert life.deadline == float("inf")
    life.step(Stop(TERM, 30.0, 0), 4.0)
    assert life.deadline == 4.0 + CONSOLE_PATIENCE_S
    life.step(Stop(TERM, 0.0, 0), 5.0)
    assert life.deadline == 5.0 + KILLED_CONSOLE_PATIENCE_S
    life.step(DeadlinePassed(shown_bytes=10**6), 6.0)
    assert life.phase == ENDED, "whatever was shown meanwhile"


def test_an_agent_that_dies_is_not_outlived_for_a_console():
    life, _ = walk((1.0, WorkerExited(0)), (2.0, AllGone()), (3.0, AgentDied()))
    assert (life.phase, life.deadline) == (SHOWING, 3.0 + KILLED_CONSOLE_PATIENCE_S)


def test_an_event_that_cannot_happen_is_an_error():
    with pytest.raises(AssertionError, match="DeadlinePassed cannot happen while running"):
        Life().step(DeadlinePassed(), 1.0)
    with pytest.raises(AssertionError, match="Stop cannot happen while ended"):
        walk((1.0, AllGone()), (2.0, AllShown()), (3.0, Stop(TERM, 1.0, 0)))


EVENTS = {
    Stop: st.builds(Stop, st.sampled_from([TERM, INT]), st.floats(0, 100), st.integers(0, 3)),
    WorkerExited: st.builds(WorkerExited, st.integers(-15, 2)),
    ChildrenChanged: st.builds(ChildrenChanged, st.integers(0, 3)),
    AllGone: st.builds(AllGone),
    AgentDied: st.builds(AgentDied),
    FencePassed: st.builds(FencePassed),
    DeadlinePassed: st.builds(DeadlinePassed, st.integers(0, 3)),
    AllShown: st.builds(AllShown),
}


def possible(life):
    """The events that the keeper can see now, whatever the processes, the agent and the console do."""
    yield from (Stop, AgentDied)
    if life.phase in HAVE_PROCESSES:
        yield from (WorkerExited, ChildrenChanged, AllGone)
    else:
        yield AllShown
    if life.phase in HEED_FENCE:
        yield FencePassed
    if life.deadline is not None:
        yield DeadlinePassed


@given(st.data())
def test_any_life_has_rules_for_all_that_can_happen_and_never_goes_back(data):
    life = Life()
    order = [RUNNING, STOPPING, LEFTOVERS, KILLING, STUCK, SHOWING, HURRYING, ENDED]
    was_killed = False
    for now in itertools.count():
        if life.phase == ENDED or now == 30:
            break
        before, deadline = life.phase, life.deadline
        kinds = list(possible(life))
        assert {kind for phase, kind in RULES if phase == life.phase} == set(kinds) | (
            {DeadlinePassed} if life.phase in (SHOWING, HURRYING) else set()
        )
        event = data.draw(EVENTS[data.draw(st.sampled_from(kinds))])
        effects = dict(life.step(event, float(now)))
        was_killed = was_killed or KILL in effects
        is_back = order.index(life.phase) < order.index(before)
        assert not is_back or (before, life.phase) == (LEFTOVERS, STOPPING)  # a model's event may revive a worker
        assert was_killed == (life.phase in (KILLING, STUCK, HURRYING) or (life.phase == ENDED and was_killed))
        if isinstance(event, Stop) and life.phase == before and deadline is not None:
            assert life.deadline <= deadline, "a stop never gives more time"
