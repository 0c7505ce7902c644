"""The rules, one by one and with anything that a store might hold. Whole stories are in the transcripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.model import Entry, Put, Snapshot
from holdfast.rendezvous.decide import Join, Leave, Me, Propose, Settings, Start, Stop, decide
from holdfast.rendezvous.records import (
    BreakKind,
    Broken,
    End,
    EndKind,
    Failure,
    Generation,
    Keys,
    Member,
    encode,
)
from holdfast.rendezvous.view import View

KEYS = Keys("job")
NODES = ("a.1", "b.1", "c.1")
FAILURE = Failure("a.1", "a", 0, 0, 77, 1, "exit code 1", 1.0)
NOW = 100.0


def generation(number=1, nodes=NODES, restarts=0, max_restarts=3):
    members = tuple(Member(node, node[0], node[0], "worker", 8) for node in nodes)
    return Generation(number, members, "a", 29500, restarts, max_restarts)


def view_of(*, leader=None, made=None, broken=None, end=None, nodes=None, done=(), is_whole=True):
    """A view that holds these records; `nodes` are node ids, and the newest generation that each has stopped."""
    values = {}
    if leader:
        values[KEYS.leader] = leader.encode()
    for key, record in ((KEYS.generation, made), (KEYS.broken, broken), (KEYS.end, end)):
        if record is not None:
            values[key] = encode(record)
    if is_whole:
        for node, stopped in (nodes or {}).items():
            values[KEYS.node(node)] = encode(replace(offer(node[0], 29500), stopped=stopped))
        values.update({KEYS.done_by(1, node): b"" for node in done})
    entries = tuple(Entry(key, values[key], 10, 10) for key in sorted(values))
    return View.read(KEYS, Snapshot(20, entries), is_whole=is_whole)


def member(node="a.1", **others):
    """A node that is in the store, with a lease that holds."""
    there = offer(node[0], 29500)
    others = {"published": there, "offer": there, "stop_by": NOW + 5, "waiting_since": NOW, **others}
    return Me(node=node, lease=7, **others)


def actions(view, me, settings=None, now=NOW):
    return decide(view, me, now, settings or Settings(min_nodes=2, max_nodes=3, last_call_s=0.0), KEYS).actions


def written(action, key):
    """What a proposal puts there."""
    assert isinstance(action, Propose)
    return next(
        operation for operation in action.transaction.then if isinstance(operation, Put) and operation.key == key
    )


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
        (view_of(made=generation(2)), {}, "went on without"),
        (view_of(made=generation(), broken=Broken(1, BreakKind.LOST, "lost c")), {}, "lost c"),
    ],
    ids=["end", "gone", "lease", "fence", "later", "broken"],
)
def test_workers_stop_for_every_reason(view, others, reason):
    me = replace(member(running=1), **others)
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

SETTINGS = Settings(min_nodes=2, max_nodes=3, last_call_s=5.0, max_restarts=3)


def lead(view, settings=SETTINGS, **others):
    return decide(view, member(**others), NOW, settings, KEYS)


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
    broken = Broken(1, BreakKind.FAILED, "rank 0 failed", FAILURE)
    view = view_of(leader="a.1", made=generation(restarts=3), broken=broken, nodes=dict.fromkeys(NODES, 0))
    stop, end = lead(view, running=1).actions
    assert isinstance(stop, Stop)
    assert not stop.may_finish
    assert b"restarts: 3 of 3" in written(end, KEYS.end).value


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
