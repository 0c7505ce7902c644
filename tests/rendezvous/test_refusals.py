"""Who can never be let in, and who only has to wait."""

from __future__ import annotations

from decisions import (
    KEYS,
    NOW,
    SETTINGS,
    actions,
    generation,
    lead,
    made_by,
    member,
    view_of,
    written,
)
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.model import Created, Delete
from holdfast.rendezvous.decide import decide
from holdfast.rendezvous.decision import Leave
from holdfast.rendezvous.records import BreakKind, Broken, Fingerprint
from holdfast.rendezvous.refusals import RANK_TAKEN_LEASES
from holdfast.rendezvous.view import REFUSALS_MAX

HERE = dict.fromkeys(("a.1", "b.1", "c.1"), 0)
GIVEN = replace(SETTINGS, min_nodes=2, max_nodes=2, lease_s=10.0, has_given_ranks=True)
RUNS = generation(nodes=("a.1", "b.1"))
CAME = {"a.1": 5, "b.1": 6, "c.1": 7, "d.1": 8}
REFUSED_AFTER_S = RANK_TAKEN_LEASES * GIVEN.lease_s
FAR = NOW + 999
"""Long before a lease ends."""


# Two programs under one run id


def test_a_node_with_another_program_is_refused_and_leaves():
    ours = replace(offer("a", 29500), fingerprint=Fingerprint(program="train.py"))
    programs = {"a.1": "train.py", "b.1": "eval.py", "c.1": "train.py"}
    view = view_of(leader="a.1", nodes=HERE, programs=programs)
    (refusal,) = lead(view, offer=ours, published=ours).actions
    why = written(refusal, f"{KEYS.refused}b.1").value.decode()
    assert why.startswith("it runs 'eval.py', and the job of this run id runs 'train.py'")
    without = view_of(leader="a.1", nodes=HERE, programs=programs, refused=["b.1"])
    made = made_by(lead(without, offer=ours, published=ours, enough_since=NOW - 5))
    assert [each.node for each in made.members] == ["a.1", "c.1"]
    assert made.fingerprint.program == "train.py"
    (leave,) = actions(view_of(leader="a.1", refused=["b.1"], is_whole=False), member("b.1"))
    assert leave == Leave(None, "another program", is_refused=True)


def test_a_newcomer_with_another_program_does_not_disturb_the_job():
    made = replace(generation(nodes=("a.1", "b.1")), fingerprint=Fingerprint(program="train.py"))
    programs = {"a.1": "train.py", "b.1": "train.py", "c.1": "eval.py"}
    view = view_of(leader="a.1", made=made, nodes=HERE, programs=programs, refused=["c.1"], seen_at={"c.1": NOW - 9})
    assert lead(view, running=1).actions == ()


def test_more_refusals_than_a_view_holds_are_not_tried_again_and_again():
    """Unless one of the refused has left: its record makes room."""
    ours = replace(offer("a", 29500), fingerprint=Fingerprint(program="train.py"))
    many = [f"{number:x}.1" for number in range(0x1000, 0x1000 + REFUSALS_MAX)]
    nodes = dict.fromkeys(["a.1", "b.1", *many], 0)
    programs = dict.fromkeys(nodes, "eval.py") | {"a.1": "train.py"}
    full = view_of(leader="a.1", nodes=nodes, programs=programs, refused=many)
    assert lead(full, offer=ours, published=ours).actions == ()
    left = view_of(leader="a.1", nodes=nodes, programs=programs, refused=[*many[1:], "ffff.1"])
    (refusal,) = lead(left, offer=ours, published=ours).actions
    assert Delete(f"{KEYS.refused}ffff.1") in refusal.transaction.then


def test_what_another_program_left_behind_refuses_nobody():
    made = replace(generation(4), job="the-old-job", fingerprint=Fingerprint(program="old.py"))
    broken = Broken(4, BreakKind.LOST, "lost c")
    programs = {"x.1": "new.py", "y.1": "new.py"}
    came = {"x.1": 15, "y.1": 16}
    view = view_of(
        leader="x.1", made=made, broken=broken, nodes=dict.fromkeys(programs, 0), programs=programs, created=came
    )
    ours = replace(offer("x", 29500), fingerprint=Fingerprint(program="new.py"))
    me = member("x.1", offer=ours, published=ours, enough_since=NOW - 5)
    assert made_by(decide(view, me, NOW, SETTINGS, KEYS)).fingerprint.program == "new.py"


# Two nodes with the same given rank


def twins(*, second=1, seen_at=NOW, **others):
    """The nodes a and b have ranks 0 and 1. So has c, which came last, if `second` is 1."""
    return view_of(
        leader="a.1",
        nodes=HERE,
        ranks={"a.1": 0, "b.1": 1, "c.1": second},
        created=CAME,
        seen_at={"a.1": 0.0, "b.1": 0.0, "c.1": seen_at},
        **others,
    )


def led(view, settings=GIVEN, now=NOW, **me):
    """What the leader decides, who runs the generation that there is."""
    return lead(view, settings, now, running=1, stop_by=FAR, **me)


def test_the_younger_of_two_with_the_same_rank_is_refused_after_two_leases():
    waits = led(twins(made=RUNS))
    assert (waits.actions, waits.wake_at) == ((), NOW + REFUSED_AFTER_S)
    (refusal,) = led(twins(made=RUNS), now=NOW + REFUSED_AFTER_S).actions
    assert written(refusal, f"{KEYS.refused}c.1").value == (
        b"rank 1 is taken by b; give each node a rank of its own, and the same --nnodes"
    )
    assert led(twins(made=RUNS, refused=["c.1"]), now=NOW + REFUSED_AFTER_S).actions == ()


def test_a_node_is_not_refused_for_a_rank_that_is_free_by_then():
    """The leader may hear late that the older one has left."""
    view = twins(made=RUNS)
    (refusal,) = led(view, now=NOW + REFUSED_AFTER_S).actions
    assert Created(KEYS.node("b.1"), CAME["b.1"]) in refusal.transaction.compares


def test_two_leases_are_those_of_the_node_that_has_the_longest():
    waits = led(twins(made=replace(RUNS, lease_s=60.0)))
    assert waits.wake_at == NOW + RANK_TAKEN_LEASES * 60.0


def test_of_several_that_have_to_wait_the_one_that_came_first_is_refused_first():
    four = dict.fromkeys(CAME, 0)
    ranks = {"a.1": 0, "b.1": 1, "c.1": 1, "d.1": 0}
    seen_at = {"a.1": 0.0, "b.1": 0.0, "c.1": NOW + 3, "d.1": NOW + 1}
    view = view_of(leader="a.1", made=RUNS, nodes=four, ranks=ranks, created=CAME, seen_at=seen_at)
    assert led(view).wake_at == NOW + 1 + REFUSED_AFTER_S


def test_nobody_is_refused_who_has_a_rank_of_its_own():
    alone = led(twins(made=RUNS, second=2), now=NOW + REFUSED_AFTER_S)
    assert (alone.actions, alone.wake_at) == ((), FAR)


def test_a_node_that_only_asks_for_a_rank_is_not_refused_for_it():
    (letting_in,) = led(
        twins(made=RUNS), replace(GIVEN, max_nodes=3, has_given_ranks=False), NOW + REFUSED_AFTER_S
    ).actions
    assert letting_in.what == "break: letting in c"


def test_a_second_node_of_a_rank_does_not_count_as_one_that_is_needed():
    there = replace(offer("a", 29500), lease_s=GIVEN.lease_s)
    (short,) = lead(twins(), replace(GIVEN, min_nodes=3, max_nodes=3), published=there).actions
    assert short.what == "too few nodes: 2 of 3"
    assert [each.node for each in made_by(lead(twins(), GIVEN, published=there)).members] == ["a.1", "b.1"]


def test_a_replacement_holds_the_rank_as_soon_as_the_lost_node_is_gone():
    broken = Broken(1, BreakKind.LOST, "lost b")
    view = view_of(leader="a.1", made=RUNS, broken=broken, nodes={"a.1": 1, "c.1": 0}, ranks={"a.1": 0, "c.1": 1})
    published = replace(offer("a", 29500), stopped=1, lease_s=GIVEN.lease_s)
    made = made_by(lead(view, GIVEN, stopped=1, published=published, offer=published))
    assert ([each.node for each in made.members], made.restarts) == (["a.1", "c.1"], 0)


def test_a_leader_may_be_the_one_that_is_refused():
    view = view_of(
        leader="c.1", nodes=HERE, ranks={"a.1": 0, "b.1": 1, "c.1": 1}, created=CAME, seen_at={"c.1": NOW}, made=RUNS
    )
    me = member("c.1", stop_by=FAR, published=replace(offer("c", 29500), lease_s=GIVEN.lease_s))
    (refusal,) = decide(view, me, NOW + REFUSED_AFTER_S, GIVEN, KEYS).actions
    assert refusal.what == "refuse c"


def test_a_node_with_another_number_of_nodes_does_not_count_as_one_that_is_needed():
    view = twins(second=2)
    del view.nodes["c.1"]
    view.nodes["b.1"] = replace(view.nodes["b.1"], fingerprint=Fingerprint(min_nodes=3, max_nodes=3))
    there = replace(offer("a", 29500), lease_s=GIVEN.lease_s)
    (short,) = lead(view, GIVEN, published=there).actions
    assert short.what == "too few nodes: 1 of 2"
