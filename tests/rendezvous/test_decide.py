"""The rules, one by one and with anything that a store might hold. Whole stories are in the transcripts."""

from __future__ import annotations

import pytest
from decisions import (
    FAILURE,
    KEYS,
    NODES,
    NOW,
    SETTINGS,
    actions,
    ended_by,
    failed,
    generation,
    judge,
    lead,
    made_by,
    member,
    view_of,
    written,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.model import Put
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.decide import decide
from holdfast.rendezvous.decision import Join, Leave, Me, Propose, Settings, Start, Stop
from holdfast.rendezvous.records import (
    BreakKind,
    Broken,
    End,
    EndKind,
    Verdict,
)
from holdfast.settings import RestartLimits

# Each node


def test_a_node_without_a_lease_joins():
    assert actions(view_of(), Me(offer=offer("a", 1))) == (Join(),)


def test_a_node_that_offers_nothing_does_nothing():
    assert actions(view_of(leader="b.1"), Me()) == ()


def test_the_first_to_see_that_nobody_leads_does():
    (claim,) = actions(view_of(), member())
    assert written(claim, KEYS.leader).value == b"a.1"
    assert written(claim, KEYS.leader).lease == 7


def test_a_member_starts_the_generation_it_is_in():
    assert actions(view_of(leader="b.1", made=generation(), is_whole=False), member()) == (Start(generation()),)


def test_a_member_does_not_start_when_its_lease_may_be_over():
    view = view_of(leader="b.1", made=generation(), is_whole=False)
    assert actions(view, member(stop_by=NOW)) == ()


def test_a_member_does_not_start_what_is_broken_and_says_that_it_has_stopped_it():
    broken = Broken(1, BreakKind.LOST, "lost c")
    (ready,) = actions(view_of(leader="b.1", made=generation(), broken=broken, is_whole=False), member())
    assert ready.publishes.stopped == 1


@pytest.mark.parametrize(
    ("view", "others", "reason"),
    [
        (view_of(end=End(EndKind.SUCCEEDED, "well")), {}, "well"),
        (view_of(made=generation()), {"store_is_gone": True}, "is gone"),
        (view_of(made=generation()), {"lease": 0, "published": None}, "lease"),
        (view_of(made=generation()), {"stop_by": NOW}, "cannot be reached"),
        (view_of(made=generation(2)), {}, "continued without"),
        (view_of(), {}, "is gone from the store"),
        (view_of(made=generation(1)), {"running": 2}, "was replaced"),
        (view_of(made=generation(1)), {"licence": (1, 9, "")}, "was replaced"),
        (view_of(made=generation(), broken=Broken(1, BreakKind.LOST, "lost c")), {}, "lost c"),
    ],
    ids=["end", "gone", "lease", "fence", "later", "deleted", "lower", "replaced", "broken"],
)
def test_workers_stop_for_every_reason(view, others, reason):
    me = replace(member(running=1, last=generation(), licence=(1, 10, "")), **others)
    stop = actions(view, me)[0]
    assert isinstance(stop, Stop)
    assert reason in stop.reason


def test_a_node_that_runs_wakes_up_to_fence_itself():
    decision = decide(view_of(leader="b.1", made=generation(), is_whole=False), member(running=1), NOW, SETTINGS, KEYS)
    assert (decision.actions, decision.wake_at) == ((), NOW + 5)


def test_a_failure_is_told_once_nobody_else_has_told_of_another():
    me = member(running=1, failure=FAILURE)
    (tell,) = actions(view_of(leader="b.1", made=generation(), is_whole=False), me)
    assert b'"failed"' in written(tell, KEYS.broken).value
    broken = Broken(1, BreakKind.LOST, "lost c")
    told = actions(view_of(leader="b.1", made=generation(), broken=broken, is_whole=False), me)
    assert [type(action) for action in told] == [Stop]


def test_a_failure_is_told_also_after_the_workers_had_to_stop():
    me = member(stopped=1, failure=FAILURE)
    (tell,) = actions(view_of(leader="b.1", made=generation(), is_whole=False), me)
    assert b'"failed"' in written(tell, KEYS.broken).value


def test_a_node_that_had_to_stop_says_that_the_generation_is_over():
    (tell,) = actions(view_of(leader="b.1", made=generation(), is_whole=False), member(stopped=1))
    assert b'"lost"' in written(tell, KEYS.broken).value


def test_a_node_that_is_done_says_so_and_then_waits():
    view = view_of(leader="b.1", made=generation(), is_whole=False)
    (mark,) = actions(view, member(running=1, done=1))
    assert mark.marks_done == 1
    assert actions(view, member(running=1, done=1, is_done_published=True)) == ()


def test_a_node_that_is_done_and_lost_its_lease_comes_back_in_case_that_nobody_leads():
    me = replace(member(running=1, done=1, is_done_published=True), lease=0, node="", published=None)
    assert actions(view_of(made=generation(), is_whole=False), me) == (Join(),)


@pytest.mark.parametrize(
    "others", [{"stop_by": NOW}, {"running": 1, "done": 1}, {"closing": End(EndKind.CLOSED, "no")}]
)
def test_nobody_waits_longer_for_a_store_than_for_nodes(others):
    me = member(**others, cut_off_since=NOW - 600)
    (leave,) = actions(view_of(leader="b.1", is_whole=False, made=generation()), me)
    assert leave == Leave(None, "the store could not be reached for 600 s")


def test_a_spare_waits_as_long_as_it_takes():
    view = view_of(leader="b.1", made=generation(nodes=("b.1", "c.1")), is_whole=False)
    assert actions(view, member(waiting_since=None), now=NOW + 10_000) == ()


# The leader


def test_the_first_generation_waits_for_the_last_call():
    decision = lead(view_of(leader="a.1", nodes={"a.1": 0, "b.1": 0}))
    assert (decision.actions, decision.wake_at) == ((), NOW + 5)
    later = decide(view_of(leader="a.1", nodes={"a.1": 0, "b.1": 0}), decision.me, NOW + 5, SETTINGS, KEYS)
    assert [action.what for action in later.actions] == ["generation 1 of 2 nodes"]


def test_a_leader_without_the_whole_view_decides_nothing():
    assert lead(view_of(leader="a.1", is_whole=False)).actions == ()


def test_the_next_generation_waits_for_those_who_have_not_stopped():
    nodes = {"a.1": 1, "b.1": 0, "c.1": 1}
    broken = Broken(1, BreakKind.FAILED, "rank 0 failed", FAILURE)
    view = view_of(leader="a.1", made=generation(), broken=broken, nodes=nodes)
    published = replace(offer("a", 29500), stopped=1)
    decision = lead(view, stopped=1, published=published, offer=published)
    assert decision.actions == ()
    assert decision.status == "waiting for the workers on b to stop"


def test_no_budget_is_the_end():
    end = ended_by(judge(FAILURE, restarts=3))
    assert end.reason == "rank 0 on a failed: exit code 1 (restarts: 3 of 3)"
    assert (end.failure, end.victims) == (FAILURE, 0)


def test_the_end_waits_for_what_the_others_have_to_say():
    broken = Broken(1, BreakKind.FAILED, "rank 0 failed", FAILURE)
    view = view_of(leader="a.1", made=generation(restarts=3), broken=broken, nodes=dict.fromkeys(NODES, 0))
    (stop,) = lead(view, running=1).actions
    assert isinstance(stop, Stop)
    assert not stop.may_finish


def test_a_failure_that_somebody_only_suffered_is_not_the_cause_whoever_spoke_first_and_whatever_the_clocks_say():
    victim = failed("a.1", 0, FailureKind.COMMUNICATION, at=1000.0, others=3)
    cause = failed("b.1", 9, at=9999.0)
    end = ended_by(judge(victim, {"a.1": victim, "b.1": cause}, max_restarts=0))
    assert (end.failure, end.victims) == (cause, 4)
    assert made_by(judge(victim, {"b.1": cause, "a.1": victim})).after == Verdict(cause, 4, generation=1)


def test_of_several_causes_the_first_that_the_store_heard_of_is_it():
    first, second = failed("c.1", 17, at=50.0), failed("b.1", 9, at=1.0)
    end = ended_by(judge(first, {"b.1": second, "c.1": first}, max_restarts=0))
    assert (end.failure, end.victims) == (first, 1)


def test_where_all_have_only_lost_their_peers_the_first_is_the_cause():
    first = failed("c.1", 17, FailureKind.COMMUNICATION)
    end = ended_by(judge(first, {"b.1": failed("b.1", 9, FailureKind.COMMUNICATION)}, max_restarts=0))
    assert (end.failure, end.victims) == (first, 1)


def test_a_victim_that_told_first_is_not_counted_again_when_its_node_finds_the_cause():
    victim = failed("a.1", 0, FailureKind.COMMUNICATION)
    cause = failed("a.1", 1, others=1)
    end = ended_by(judge(victim, {"a.1": cause}, max_restarts=0))
    assert (end.failure, end.victims) == (cause, 1)


def test_a_hang_that_another_node_found_stands_beside_what_its_own_node_tells():
    hang = failed("b.1", 9, FailureKind.HANG)
    end = ended_by(judge(hang, {"b.1": failed("b.1", 8, FailureKind.COMMUNICATION)}, max_restarts=0))
    assert (end.failure, end.victims) == (hang, 1)


def test_workers_that_lost_their_peers_with_a_node_that_is_gone_cost_no_restart():
    first = failed("a.1", 0, FailureKind.COMMUNICATION)
    made = made_by(judge(first, {"a.1": first}, nodes=("a.1", "b.1"), max_restarts=0))
    assert (made.restarts, made.after, len(made.members)) == (0, None, 2)


def test_what_cannot_go_away_ends_the_job_although_there_are_restarts():
    end = ended_by(judge(failed("b.1", 9, hopeless="a syntax error does not go away by itself")))
    assert end.reason.endswith("(not restarted: a syntax error does not go away by itself)")


def test_the_same_exception_at_the_same_line_twice_within_seconds_ends_the_job():
    again = failed("b.1", 9, where="train.py:3 in main", exception="ValueError", ran_s=1.0)
    past = {"signature": "ValueError at train.py:3 in main", "restarts": 1}
    assert "twice within seconds" in ended_by(judge(again, **past)).reason
    always = replace(SETTINGS, restarts=RestartLimits(3, policy="always"))
    assert made_by(judge(again, settings=always, **past)).restarts == 2


def test_restarts_are_counted_anew_after_the_window():
    settings = replace(SETTINGS, restarts=RestartLimits(3, window_s=100.0))
    made = made_by(judge(failed("b.1", 9, ran_s=100.0), settings=settings, restarts=3))
    assert (made.restarts, made.past.spent) == (4, 1)
    assert ended_by(judge(failed("b.1", 9, ran_s=99.0), settings=settings, restarts=3))


def test_faults_of_machines_in_a_row_are_followed_by_a_pause():
    killed = failed("b.1", 9, FailureKind.KILLED)
    assert made_by(judge(killed)).past.faults == 1
    waits = judge(killed, faults=1)
    assert waits.actions == ()
    assert waits.wake_at == NOW + 0.5
    assert "waiting 0.5 s before" in waits.status
    assert made_by(judge(killed, faults=1, me={"over_since": NOW}, now=NOW + 0.5)).past.faults == 2


def test_a_pause_passes_while_the_last_processes_end():
    killed = failed("b.1", 9, FailureKind.KILLED)
    waits = judge(killed, faults=1, stopping=["b.1"])
    assert (waits.actions, waits.status) == ((), "waiting for the workers on b to stop")
    assert made_by(judge(killed, faults=1, me={"over_since": waits.me.over_since}, now=NOW + 0.5)).past.faults == 2


def test_a_node_that_fails_again_and_again_is_left_out_while_the_others_suffice():
    past = {"node": "b.1", "blames": 2, "restarts": 2}
    made = made_by(judge(failed("b.1", 9), **past))
    assert [member.node for member in made.members] == ["a.1", "c.1"]
    assert made.past.left_out == ("b.1",)
    needed = replace(SETTINGS, min_nodes=3)
    assert len(made_by(judge(failed("b.1", 9), settings=needed, **past)).members) == 3


def test_a_node_that_was_left_out_is_no_newcomer_and_knows_why():
    made = generation(nodes=("a.1", "c.1"), left_out=("b.1",))
    view = view_of(leader="a.1", made=made, nodes={"a.1": 0, "b.1": 1, "c.1": 0})
    assert lead(view, running=1).actions == ()
    there = replace(offer("b", 29500), stopped=1)
    decision = decide(
        view_of(leader="a.1", made=made, is_whole=False),
        member("b.1", stopped=1, published=there, offer=there),
        NOW,
        SETTINGS,
        KEYS,
    )
    assert decision.status == "2 nodes run; this one was left out because only its workers failed"


def test_all_done_is_the_end():
    view = view_of(leader="a.1", made=generation(), nodes={"a.1": 0}, done=NODES)
    (end,) = lead(view, running=1, done=1, is_done_published=True).actions
    assert b"all 3 nodes succeeded" in written(end, KEYS.end).value


def test_a_long_list_of_hosts_is_cut_short():
    everybody = [f"{letter}.1" for letter in "abcdefghij"]
    view = view_of(leader="a.1", made=generation(nodes=everybody), nodes={"a.1": 0})
    (broken,) = lead(view, running=1).actions
    assert broken.what == "break: lost b, c, d, e and 5 more"


# With anything that a store might hold

TIMES = st.one_of(st.none(), st.sampled_from([NOW - 1000, NOW - 1, NOW]))


@st.composite
def views(draw):
    numbers = st.integers(1, 3)
    nodes = st.sampled_from(NODES)
    return view_of(
        leader=draw(st.one_of(st.none(), nodes)),
        made=draw(
            st.one_of(
                st.none(),
                st.builds(
                    generation,
                    numbers,
                    st.lists(nodes, unique=True, min_size=1),
                    st.integers(0, 3),
                ),
            )
        ),
        broken=draw(
            st.one_of(
                st.none(),
                st.builds(
                    Broken,
                    numbers,
                    st.sampled_from(BreakKind),
                    st.just("why"),
                    st.sampled_from([None, FAILURE]),
                    st.integers(0, 3),
                ),
            )
        ),
        end=draw(st.sampled_from([None, None, None, End(EndKind.SUCCEEDED, "well")])),
        nodes=draw(st.dictionaries(nodes, st.integers(0, 3))),
        done=draw(st.lists(nodes)),
        is_whole=draw(st.booleans()),
    )


@st.composite
def selves(draw):
    there = st.sampled_from([None, offer("a", 29500), replace(offer("a", 29500), stopped=1)])
    lease = draw(st.sampled_from([0, 7]))
    running = draw(st.integers(0, 3))
    return Me(
        node="a.1" if lease else "",
        lease=lease,
        offer=offer("a", 29500) if running else draw(there),
        published=draw(there) if lease else None,
        running=running,
        stopped=draw(st.integers(0, 3)),
        done=draw(st.sampled_from([0, running])),
        is_done_published=draw(st.booleans()),
        failure=draw(st.sampled_from([None, FAILURE])),
        closing=draw(st.sampled_from([None, None, End(EndKind.CLOSED, "no")])),
        store_is_gone=draw(st.booleans()),
        stop_by=draw(st.sampled_from([NOW - 1, NOW, NOW + 1, float("inf")])),
        cut_off_since=draw(TIMES),
        waiting_since=draw(TIMES),
        enough_since=draw(TIMES),
    )


SOME_SETTINGS = st.builds(
    Settings,
    min_nodes=st.integers(1, 2),
    max_nodes=st.integers(2, 4),
    max_restarts=st.integers(0, 3),
    last_call_s=st.sampled_from([0.0, 5.0]),
    recall_s=st.sampled_from([0.0, 5.0]),
    join_timeout_s=st.sampled_from([0.0, 10.0]),
)


@given(views(), selves(), SOME_SETTINGS)
def test_it_says_what_should_be_so_however_often_it_is_asked(view, me, settings):
    first = decide(view, me, NOW, settings, KEYS)
    assert decide(view, me, NOW, settings, KEYS) == first
    if not any(isinstance(action, Start) for action in first.actions):
        assert decide(view, first.me, NOW, settings, KEYS) == first


@given(views(), selves(), SOME_SETTINGS)
def test_nobody_starts_or_leaves_with_workers_and_nothing_is_stopped_twice(view, me, settings):
    said = decide(view, me, NOW, settings, KEYS).actions
    kinds = [type(action) for action in said]
    assert kinds.count(Stop) + kinds.count(Start) + kinds.count(Leave) <= 1
    if me.running and me.done != me.running:
        assert Start not in kinds
        assert Leave not in kinds
    if Start in kinds or Leave in kinds:
        assert len(kinds) == 1


@given(views(), selves(), SOME_SETTINGS)
def test_what_is_decided_for_all_is_guarded(view, me, settings):
    for action in decide(view, me, NOW, settings, KEYS).actions:
        if isinstance(action, Propose):
            keys = {compare.key for compare in action.transaction.compares}
            puts = {operation.key for operation in action.transaction.then if isinstance(operation, Put)}
            assert KEYS.end in keys
            if puts & {KEYS.generation, KEYS.broken}:
                assert KEYS.generation in keys
            if KEYS.generation in puts:
                assert KEYS.leader in keys
                assert view.leader == me.node
            if KEYS.broken in puts:
                assert KEYS.broken in keys


@given(views(), selves(), SOME_SETTINGS)
def test_a_time_to_wake_up_is_in_the_future(view, me, settings):
    decision = decide(view, me, NOW, settings, KEYS)
    if decision.wake_at is not None:
        assert decision.wake_at > NOW
