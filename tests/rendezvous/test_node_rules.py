"""Every node's own rules, one by one: start, stop, tell, wait. Whole stories are in the transcripts."""

from __future__ import annotations

import msgspec
import pytest
from decisions import FAILURE, KEYS, NOW, SETTINGS, actions, failed, generation, member, view_of, written
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.rendezvous.decide import decide
from holdfast.rendezvous.decision import Join, Leave, Me, Start, Stop
from holdfast.rendezvous.records import BreakKind, Broken, End, EndKind, Node, Short


def test_a_node_without_a_lease_joins():
    assert actions(view_of(), Me(offer=offer("a", 1))) == (Join(),)


def test_a_node_that_offers_nothing_does_nothing():
    assert actions(view_of(leader="b.1"), Me()) == ()


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


def test_a_node_that_starts_remembers_the_record_that_lets_it():
    view = view_of(leader="b.1", made=generation(), is_whole=False)
    decision = decide(view, member(has_lapsed=True), NOW, SETTINGS, KEYS)
    assert decision.actions == (Start(generation()),)
    assert (decision.me.last, decision.me.licence) == (generation(), (1, view.generation_revision, ""))
    assert not decision.me.has_lapsed, "nothing newer was missed"


def test_a_node_does_not_start_other_workers_than_it_offered():
    """A member that writes a generation itself must not have the others start as many workers as it likes."""
    for forged in ({"workers": 5000}, {"workers": 0}, {"role": "another"}):
        members = tuple(replace(row, **forged) if row.node == "a.1" else row for row in generation().members)
        made = replace(generation(), members=members)
        (action,) = actions(view_of(leader="b.1", made=made, is_whole=False), member())
        broken = msgspec.json.decode(written(action, KEYS.broken).value, type=Broken)
        assert (broken.generation, broken.kind) == (1, BreakKind.LOST)
        assert broken.reason.startswith("a does not start its workers of generation 1")


def test_a_node_says_again_that_it_is_there_when_the_leader_misses_nodes_or_records_are_gone():
    enough = view_of(leader="b.1", is_whole=False)
    few = view_of(leader="b.1", short=Short(1, 2), is_whole=False)
    there = member(said_at=NOW - 1, waiting_since=None)
    assert actions(enough, there) == ()
    (ready,) = actions(few, there)
    assert {put.key for put in ready.transaction.then} == {KEYS.node("a.1"), KEYS.alive_of("a.1")}
    assert actions(few, replace(there, said_at=NOW, waiting_since=NOW - 1)) == ()
    assert actions(enough, replace(there, lost_at=NOW))


def test_the_join_timeout_runs_only_while_there_are_too_few():
    late = NOW + SETTINGS.join_timeout_s
    broken = Broken(1, BreakKind.LOST, "lost c")
    stopped = replace(offer("a", 29500), stopped=1)
    me = member(stopped=1, published=stopped, offer=stopped)
    enough = {"leader": "b.1", "made": generation(), "broken": broken, "is_whole": False}
    assert actions(view_of(**enough), me, SETTINGS, now=late) == ()
    short = view_of(short=Short(1, 2), **enough)
    assert isinstance(actions(short, me, SETTINGS, now=late)[0], Leave)
    assert decide(view_of(**enough), me, NOW, SETTINGS, KEYS).me.waiting_since is None
    assert decide(short, replace(me, waiting_since=None), NOW, SETTINGS, KEYS).me.waiting_since == NOW


def test_a_failure_of_an_earlier_generation_is_not_told_of_one_that_the_node_never_ran():
    """It was cut off while the next generation began and broke; then it comes back, and says that it runs nothing."""
    broken = Broken(2, BreakKind.FAILED, "b failed", failed("b.1", 1))
    view = view_of(leader="b.1", made=generation(2), broken=broken, is_whole=False)

    def told(stopped):
        decision = decide(view, member(stopped=stopped, failure=failed("a.1", 0)), NOW, SETTINGS, KEYS)
        return msgspec.json.decode(written(decision.actions[0], KEYS.node("a.1")).value, type=Node)

    assert (told(1).stopped, told(1).failure) == (2, None)
    assert told(2).failure is not None, "of one that it ran, it is"


# Nodes that were told their ranks

GIVEN = replace(SETTINGS, min_nodes=3, max_nodes=3, has_given_ranks=True)


def given(node="b.1", rank=1, **others):
    """A node that was told its rank, and is in the store."""
    there = offer(node[0], 29500, rank)
    return member(node, offer=there, published=there, **others)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "view",
    [
        view_of(leader="a.1", short=Short(1, 3), is_whole=False),
        view_of(leader="a.1", made=generation(), is_whole=False),
        view_of(leader="a.1", made=generation(), broken=Broken(1, BreakKind.LOST, "lost c"), is_whole=False),
    ],
    ids=["too few", "running", "broken"],
)
def test_a_node_that_was_told_another_number_of_nodes_leaves(view, size):
    other = replace(GIVEN, min_nodes=size, max_nodes=size)
    (leave,) = actions(view, given(), other)
    assert (leave.end, leave.is_refused) == (None, True)
    assert leave.reason == f"--nnodes is {size} here and 3 on another node; give all nodes the same"
    assert not any(isinstance(each, Leave) for each in actions(view, given(), GIVEN))
    elastic = replace(other, has_given_ranks=False)
    assert not any(isinstance(each, Leave) for each in actions(view, given(), elastic))


def test_a_node_with_another_number_of_nodes_leaves_before_it_offers_anything():
    view = view_of(leader="a.1", short=Short(1, 3), is_whole=False)
    (leave,) = actions(view, Me(offer=offer("b", 29500, 1)), replace(GIVEN, min_nodes=2, max_nodes=2))
    assert isinstance(leave, Leave)


def test_the_end_of_the_job_comes_before_what_is_wrong_with_a_node():
    end = End(EndKind.SUCCEEDED, "all 3 nodes succeeded")
    (leave,) = actions(view_of(end=end, is_whole=False), given(), replace(GIVEN, max_nodes=2))
    assert leave == Leave(end, end.reason)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_node_starts_with_the_rank_that_it_was_given_or_not_at_all(rank):
    view = view_of(leader="a.1", made=generation(), is_whole=False)
    assert actions(view, given(), GIVEN) == (Start(generation()),)
    (break_up,) = actions(view, given(rank=rank), GIVEN)
    assert b'"lost"' in written(break_up, KEYS.broken).value
    asks_only = replace(GIVEN, has_given_ranks=False)
    assert actions(view, given(rank=rank), asks_only) == (Start(generation()),)
