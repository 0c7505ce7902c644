"""What a node does next, with anything that a store might hold. Whole stories are in the transcripts."""

from __future__ import annotations

import msgspec
from decisions import FAILURE, KEYS, NODES, NOW, SETTINGS, actions, generation, lead, member, view_of, written
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.model import Put
from holdfast.rendezvous.decide import decide, registration
from holdfast.rendezvous.decision import Join, Leave, Me, Propose, Settings, Start, Stop
from holdfast.rendezvous.records import BreakKind, Broken, End, EndKind, Node


def test_the_first_to_see_that_nobody_leads_does():
    (claim,) = actions(view_of(), member())
    assert written(claim, KEYS.leader).value == b"a.1"
    assert written(claim, KEYS.leader).lease == 7


def test_a_leader_without_the_whole_view_decides_nothing():
    assert lead(view_of(leader="a.1", is_whole=False)).actions == ()


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


def test_a_node_joins_strangers_only_when_the_workers_that_they_know_nothing_of_are_gone():
    """The store lost its data, and nodes that had never heard of this node's job have begun another one."""
    theirs = replace(generation(nodes=("b.1",)), job="theirs")
    ours = replace(generation(nodes=("d.1",)), job="ours", lease_s=3.0)
    view, empty = view_of(leader="b.1", made=theirs, is_whole=False), view_of(leader="b.1", is_whole=False)
    knows = member(published=None, newest=ours, known=1, known_lease_s=3.0, missing=ours, lost_at=NOW - 1)
    waits = decide(view, knows, NOW, SETTINGS, KEYS)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    assert decide(view, waits.me, NOW + 2, SETTINGS, KEYS).actions == (Join(),)
    assert decide(empty, waits.me, NOW + 1, SETTINGS, KEYS).actions == (), "also if the store loses its data again"
    same = replace(ours, job="theirs")
    for anew in (replace(knows, newest=None, missing=None), replace(knows, newest=same, missing=same)):
        assert decide(view, anew, NOW, SETTINGS, KEYS).actions == (Join(),)


def test_a_node_tells_a_store_that_it_comes_to_what_it_knows_and_does_not_repeat_it():
    def told(**me):
        decision = decide(view_of(leader="b.1", is_whole=False), member(**me), NOW, SETTINGS, KEYS)
        return decision.me.offer.known

    assert told(known=7, published=None) == 7
    assert told(known=7) == 0, "the store knows as much"
    assert told(known=7, said_at=NOW - 2, lost_at=NOW - 1) == 7
    put = registration(member(known=7), KEYS).then[0]
    assert msgspec.json.decode(put.value, type=Node).known == 7


def test_a_leader_that_is_not_in_the_store_any_more_registers_again():
    gone = view_of(leader="a.1", nodes={"b.1": 0})
    assert actions(gone, member(said_revision=20)) == (Join(),)
    assert Join() not in actions(gone, member(said_revision=21)), "what it said is still on its way to it"
