"""The leader's rules, one by one: the next generation, who is in it, what is counted, the end of the job."""

from __future__ import annotations

import random

import msgspec
from decisions import (
    FAILURE,
    KEYS,
    NODES,
    NOW,
    SETTINGS,
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
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Delete, Put, Transaction
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.admission import BATCH_S, HOLD_BACK_S, LOSSES_MAX
from holdfast.rendezvous.decide import decide
from holdfast.rendezvous.decision import NO_RECORD, Settings, Stop
from holdfast.rendezvous.records import GENERATION_MAX, Arrivals, BreakKind, Broken, Short, encode
from holdfast.rendezvous.restarts import STEADY_S
from holdfast.rendezvous.view import View
from holdfast.settings import RestartLimits

# The next generation


def test_the_first_generation_waits_for_the_last_call():
    decision = lead(view_of(leader="a.1", nodes={"a.1": 0, "b.1": 0}))
    assert (decision.actions, decision.wake_at) == ((), NOW + 5)
    later = decide(view_of(leader="a.1", nodes={"a.1": 0, "b.1": 0}), decision.me, NOW + 5, SETTINGS, KEYS)
    assert [action.what for action in later.actions] == ["generation 1 of 2 nodes"]


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


HERE = {"a.1": 0, "b.1": 0, "c.1": 0}


ELASTIC = Settings(min_nodes=2, max_nodes=4, last_call_s=5.0, max_restarts=3)


# A store that has lost its data


def test_a_job_whose_numbers_are_spent_ends_and_says_why():
    """Every number that is left fits into a record, and nobody waits for one that does not."""
    for number in (GENERATION_MAX - 1, GENERATION_MAX):
        broken = Broken(number, BreakKind.LOST, "lost")
        view = view_of(leader="a.1", made=generation(number), broken=broken, nodes=dict.fromkeys(HERE, number))
        published = replace(offer("a", 29500), stopped=number)
        decision = lead(view, published=published, offer=published, stopped=number, enough_since=NOW - 9)
        if number < GENERATION_MAX:
            assert made_by(decision).number == GENERATION_MAX
        else:
            assert "choose another --rdzv-id" in ended_by(decision).reason


def test_a_number_is_never_used_again_also_when_the_store_has_lost_the_record():
    nodes = {"a.1": 7, "b.1": 3}
    view = view_of(leader="a.1", nodes=nodes)
    published = replace(offer("a", 29500), stopped=7)
    made = made_by(lead(view, published=published, offer=published, stopped=7, enough_since=NOW - 5))
    assert made.number == 8


def test_a_leader_that_knows_nothing_waits_for_the_nodes_of_a_lost_generation_that_a_spare_has_seen():
    """The store has lost everything. The leader is new, and the others that are here were spares."""
    settings = replace(SETTINGS, lease_s=3.0)
    view = view_of(leader="a.1", nodes=dict.fromkeys(("a.1", "b.2"), 0), seen_at={"a.1": NOW - 9, "b.2": NOW - 1})
    view.nodes["b.2"] = replace(view.nodes["b.2"], known=7)
    published = replace(offer("a", 29500), lease_s=3.0)
    waits = lead(view, settings=settings, published=published, offer=published, enough_since=NOW - 9)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    goes_on = lead(view, settings=settings, now=NOW + 2, published=published, offer=published, enough_since=NOW - 9)
    assert made_by(goes_on).number == 8


def test_a_leader_that_was_away_waits_for_those_of_whom_an_empty_store_may_have_known():
    """It stood still while others went on without it, and then the store lost everything."""
    settings = replace(SETTINGS, lease_s=3.0, min_nodes=1)
    view = view_of(leader="a.1", nodes={"a.1": 4})
    published = replace(offer("a", 29500), stopped=4, lease_s=3.0)
    mine = {"settings": settings, "published": published, "offer": published, "stopped": 4, "enough_since": NOW - 9}
    waits = lead(view, known=4, came_at=NOW - 1, lost_at=NOW - 99, **mine)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    assert made_by(lead(view, known=4, came_at=NOW - 3, lost_at=NOW - 99, **mine)).number == 5
    fresh = {**mine, "published": replace(published, stopped=0), "offer": replace(published, stopped=0), "stopped": 0}
    first = lead(view_of(leader="a.1", nodes={"a.1": 0}), came_at=NOW - 1, **fresh)
    assert made_by(first).number == 1, "it has never seen a generation"


def test_a_node_that_is_here_and_has_not_stopped_a_lost_generation_is_given_the_time_of_two_leases():
    """It stood still when the record was deleted, renewed its lease at the last moment, and heard of it then."""
    settings = replace(SETTINGS, lease_s=3.0)
    seen = view_of(leader="a.1", made=generation())
    published = replace(offer("a", 29500), stopped=1, lease_s=3.0)
    mine = {"settings": settings, "published": published, "offer": published, "stopped": 1, "enough_since": NOW - 9}
    record = (1, seen.generation_revision, "")
    mine |= {"known": 1, "last": generation(), "licence": record, "lost": record, "missing": generation()}
    view = view_of(leader="a.1", nodes={"a.1": 1, "b.1": 1, "c.1": 0})
    waits = lead(view, lost_at=NOW - 4, **mine)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    assert made_by(lead(view, lost_at=NOW - 6, **mine)).number == 2
    stopped = view_of(leader="a.1", nodes={"a.1": 1, "b.1": 1, "c.1": 1})
    assert made_by(lead(stopped, lost_at=NOW - 4, **mine)).number == 2, "all have said so"


def test_a_leader_whose_lease_has_lapsed_cannot_know_that_all_have_stopped():
    """Its own generation was the last for all that it knows, and all of that one's nodes are here and have stopped. But
    others may have run a newer one while it was away.
    """
    settings = replace(SETTINGS, lease_s=3.0, min_nodes=1)
    alone = generation(nodes=("a.1",))
    record = (1, view_of(leader="a.1", made=alone).generation_revision, "")
    published = replace(offer("a", 29500), stopped=1, lease_s=3.0)
    mine = {"settings": settings, "published": published, "offer": published, "stopped": 1, "enough_since": NOW - 9}
    mine |= {"known": 1, "last": alone, "licence": record, "lost": record, "missing": alone, "lost_at": NOW - 1}
    view = view_of(leader="a.1", nodes={"a.1": 1})
    assert made_by(lead(view, came_at=NOW - 1, **mine)).number == 2, "it was never away"
    waits = lead(view, came_at=NOW - 1, has_lapsed=True, **mine)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    assert made_by(lead(view, came_at=NOW - 3, has_lapsed=True, **{**mine, "lost_at": NOW - 3})).number == 2


def test_a_leader_waits_for_the_nodes_of_a_job_that_only_others_know():
    """Its number is no larger than that of the leader's own generation, because numbers begin again with each job."""
    settings = replace(SETTINGS, lease_s=3.0)
    ours = replace(generation(nodes=("a.1", "b.1")), job="ours")
    record = (1, 10, "ours")
    published = replace(offer("a", 29500), stopped=1, lease_s=3.0, job="ours")
    mine = {"settings": settings, "published": published, "offer": published, "stopped": 1, "enough_since": NOW - 9}
    mine |= {
        "known": 1,
        "last": ours,
        "newest": ours,
        "licence": record,
        "lost": record,
        "lost_at": NOW - 1,
        "said_at": NOW,
    }
    view = view_of(leader="a.1", nodes={"a.1": 1, "b.1": 1, "d.1": 1}, seen_at={"d.1": NOW - 1})
    assert made_by(lead(view, **mine)).number == 2
    view.nodes["d.1"] = replace(view.nodes["d.1"], known_job="another")
    waits = lead(view, **mine)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    assert made_by(lead(view, now=NOW + 2, **mine)).number == 2


def test_what_a_leader_decided_for_another_store_means_nothing_to_a_new_one():
    """Revisions begin again after a loss of data: those of the leader's key and the generation may well be the same."""

    def store_with(*nodes):
        store = KeySpace(random_bytes=random.Random(7).randbytes)
        for node in nodes:
            store.transact(Transaction((), (Put(KEYS.node(node), encode(offer(node[0], 29500))),)))
        store.transact(Transaction((), (Put(KEYS.leader, nodes[0].encode()),)))
        return store

    before, after = store_with("a.1", "b.1"), store_with("b.2", "a.2")
    assert before.get(KEYS.leader).created == after.get(KEYS.leader).created
    view = View.read(KEYS, before.get_prefix(KEYS.group), is_whole=True)
    published = offer("a", 29500)
    (late,) = lead(view, published=published, offer=published, enough_since=NOW - 9).actions
    assert not after.transact(late.transaction).succeeded
    assert before.transact(late.transaction).succeeded


def test_the_next_generation_is_not_written_into_a_backup_that_knows_nothing_of_the_end_of_the_last_one():
    store = KeySpace(random_bytes=random.Random(7).randbytes)
    for node in ("a.1", "b.1"):
        ready = replace(offer(node[0], 29500), stopped=1)
        store.transact(Transaction((), (Put(KEYS.node(node), encode(ready)), Put(KEYS.alive_of(node), b""))))
    made = generation(nodes=("a.1", "b.1"))
    store.transact(Transaction((), (Put(KEYS.leader, b"a.1"), Put(KEYS.generation, encode(made)))))
    broken = Put(KEYS.broken, encode(Broken(1, BreakKind.JOINED, "letting in c")))
    store.transact(Transaction((), (broken,)))
    view = View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True)
    published = replace(offer("a", 29500), stopped=1)
    (late,) = lead(view, published=published, offer=published, stopped=1, enough_since=NOW - 9).actions
    assert msgspec.json.decode(written(late, KEYS.generation).value)["number"] == 2
    store.transact(Transaction((), (Delete(KEYS.broken),)))  # as the backup has it
    assert not store.transact(late.transaction).succeeded


def test_a_leader_that_was_away_goes_on_with_the_job_that_others_have_begun_meanwhile():
    """It remembers a generation with a larger number, of a job that the store has lost."""
    stored = replace(generation(1), job="new")
    view = view_of(
        leader="a.1", made=stored, broken=Broken(1, BreakKind.JOINED, "joined"), nodes=dict.fromkeys(HERE, 1)
    )
    mine = replace(offer("a", 29500), stopped=2, job="old")
    known = {"known": 2, "last": replace(generation(2), job="old"), "stopped": 2, "enough_since": NOW - 9}
    view.nodes["b.1"] = replace(view.nodes["b.1"], job="new")
    made = made_by(lead(view, published=mine, offer=mine, **known))
    assert (made.job, made.number) == ("new", 3)
    view.nodes["b.1"] = replace(view.nodes["b.1"], job="old")
    assert made_by(lead(view, published=mine, offer=mine, **known)).job == "old"


def test_a_node_that_looks_lost_because_its_records_were_deleted_is_given_the_time_of_a_lease():
    settings = replace(SETTINGS, lease_s=3.0)
    broken = Broken(1, BreakKind.LOST, "lost c", lost=("c.1",))
    view = view_of(leader="a.1", made=generation(), broken=broken, nodes={"a.1": 1, "b.1": 1})
    view.doubtful["c.1"] = NOW - 1
    published = replace(offer("a", 29500), stopped=1, lease_s=3.0)
    mine = {"settings": settings, "published": published, "offer": published, "stopped": 1}
    waits = lead(view, **mine)
    assert (waits.actions, waits.wake_at) == ((), NOW + 2)
    assert "the lease of c was not seen to end" in waits.status
    assert made_by(lead(view, now=NOW + 2, **mine)).number == 2


def test_a_leader_that_remembers_a_lost_generation_waits_for_its_nodes_and_goes_on_where_it_was():
    last = replace(generation(restarts=2), job="the-job")
    published = replace(offer("a", 29500), stopped=1, job="the-job", lease_s=3.0)
    settings = replace(SETTINGS, lease_s=3.0)
    view = view_of(leader="a.1", nodes={"a.1": 1, "b.2": 1}, seen_at={"a.1": NOW, "b.2": NOW})
    record = (1, 10, "the-job")
    me = {"last": last, "licence": record, "known": 1, "seen": record, "stopped": 1}
    me.update(published=published, offer=published)
    waits = lead(view, settings, **me)
    assert (waits.actions, waits.wake_at) == ((), NOW + 3.0)
    later = {**me, "seen": NO_RECORD, "lost": record, "lost_at": NOW}
    made = made_by(lead(view, settings, now=NOW + 3.0, **later))
    assert (made.number, made.restarts, made.job) == (2, 2, "the-job")
    back = view_of(leader="a.1", nodes={"a.1": 1, "b.2": 1, "c.1": 1})
    assert made_by(lead(back, settings, **me)).restarts == 2


# The next job of the same run id


def left_over(**others):
    """What nodes find that use the run id of a job that everybody left without an end: none of them was there."""
    made = replace(generation(4, restarts=2, max_restarts=2), job="the-old-job")
    broken = Broken(4, BreakKind.FAILED, "rank 0 failed", failed("a.1", 0))
    created = {"x.1": 15, "y.1": 16}
    return view_of(leader="x.1", made=made, broken=broken, nodes={"x.1": 0, "y.1": 0}, created=created, **others)


def test_a_job_that_finds_what_another_left_begins_anew():
    me = member("x.1", enough_since=NOW)
    waits = decide(left_over(), me, NOW, SETTINGS, KEYS)
    assert (waits.actions, waits.wake_at) == ((), NOW + SETTINGS.last_call_s)
    made = made_by(decide(left_over(), me, NOW + 5, SETTINGS, KEYS))
    assert (made.number, made.restarts, made.max_restarts, made.after) == (5, 0, 3, None)
    assert made.job not in ("", "the-old-job")


def test_a_node_that_took_part_goes_on_with_its_job_although_it_had_to_register_again():
    view = left_over()
    view.nodes["x.1"] = replace(view.nodes["x.1"], job="the-old-job", stopped=4)
    published = replace(offer("x", 29500), stopped=4)
    me = member("x.1", stopped=4, published=published, offer=published)
    assert "restarts: 2 of 2" in ended_by(decide(view, me, NOW, SETTINGS, KEYS)).reason


def test_a_spare_that_was_there_goes_on_with_its_job():
    view = left_over()
    view.ages["y.1"] = 5
    assert "restarts: 2 of 2" in ended_by(decide(view, member("x.1"), NOW, SETTINGS, KEYS)).reason


# Too few nodes


def test_the_leader_says_that_there_are_too_few_and_takes_it_back():
    (word,) = lead(view_of(leader="a.1", nodes={"a.1": 0})).actions
    assert msgspec.json.decode(written(word, KEYS.short).value, type=Short) == Short(1, 2)
    short = Short(1, 2)
    assert lead(view_of(leader="a.1", nodes={"a.1": 0}, short=short)).actions == ()
    (word,) = lead(view_of(leader="a.1", nodes={"a.1": 0, "b.1": 0}, short=short)).actions
    assert word.transaction.then == (Delete(KEYS.short),)


def test_nobody_runs_out_of_time_in_a_last_call_that_is_longer():
    patient = replace(SETTINGS, join_timeout_s=1.0, last_call_s=30.0)
    decision = lead(view_of(leader="a.1", nodes={"a.1": 0, "b.1": 0}), patient, now=NOW + 10, enough_since=NOW)
    assert (decision.actions, decision.wake_at) == ((), NOW + 30)


# Who is let in


def newcomer(losses=(), joins=0, seen_at=NOW, **others):
    made = replace(generation(nodes=("a.1", "b.1")), arrivals=Arrivals(joins, losses))
    return view_of(leader="a.1", made=made, nodes=HERE, seen_at={"c.1": seen_at}, **others)


def test_a_newcomer_waits_a_moment_for_others():
    waits = lead(newcomer(), running=1)
    assert (waits.actions, waits.wake_at) == ((), NOW + BATCH_S)
    (letting_in,) = lead(newcomer(), now=NOW + BATCH_S, running=1, stop_by=NOW + 99).actions
    assert letting_in.what == "break: letting in c"
    assert lead(newcomer(joins=3), running=1).wake_at == NOW + 8 * BATCH_S


def test_a_machine_that_was_lost_again_and_again_is_held_back_and_knows_why():
    view = newcomer(losses=(("c", 2),))
    assert lead(view, now=NOW + 1, running=1, stop_by=NOW + 99).wake_at == NOW + HOLD_BACK_S
    assert lead(view, now=NOW + HOLD_BACK_S, running=1, stop_by=NOW + 99).actions
    made = replace(generation(nodes=("a.1", "b.1")), arrivals=Arrivals(0, (("c", 2),)))
    spare = decide(view_of(leader="a.1", made=made, is_whole=False), member("c.1"), NOW, SETTINGS, KEYS)
    assert spare.status == "2 nodes run; this one was lost 2 times; it is let in again after staying for 5 s"


def over(nodes, kind=BreakKind.LOST, losses=(), joining=(), settings=ELASTIC, now=NOW, seen_at=None, ran_s=3, **me):
    """What the leader does after a generation of a, b and c."""
    made = replace(generation(), arrivals=Arrivals(0, losses))
    broken = Broken(1, kind, "over", joining=joining)
    seats = {} if ran_s is None else {each.node: now - ran_s for each in made.members}
    view = view_of(leader="a.1", made=made, broken=broken, nodes=nodes, seen_at=seen_at, seated_at=seats)
    published = replace(offer("a", 29500), stopped=1)
    return lead(view, settings, now=now, stopped=1, published=published, offer=published, on_since=(1, NOW - 9), **me)


def test_a_loss_is_remembered_by_the_machine():
    made = made_by(over({"a.1": 1, "b.1": 1}))
    assert (dict(made.arrivals.losses), made.restarts, made.lost) == ({"c": 1}, 0, ("c",))
    assert dict(made_by(over({"a.1": 1, "b.1": 1}, losses=(("c", 4),))).arrivals.losses) == {"c": 5}


def test_a_newcomer_that_is_gone_before_it_was_let_in_counts_as_lost():
    made = made_by(over({"a.1": 1, "b.1": 1, "c.1": 1}, BreakKind.JOINED, joining=(("d.1", "d"),)))
    assert (made.arrivals.joins, dict(made.arrivals.losses)) == (1, {"d": 1})


def test_a_machine_that_is_held_back_is_not_in_the_next_generation_unless_it_is_needed():
    back = {"a.1": 1, "b.1": 1, "c.2": 1}
    held = {"losses": (("c", 1),), "seen_at": {"c.2": NOW}}
    assert [each.node for each in made_by(over(back, **held)).members] == ["a.1", "b.1"]
    needed = replace(ELASTIC, min_nodes=3)
    assert [each.node for each in made_by(over(back, settings=needed, **held)).members] == ["a.1", "b.1", "c.2"]


def test_a_job_that_needs_a_machine_that_is_lost_all_the_time_ends_and_says_so():
    needed = replace(ELASTIC, min_nodes=3)
    nodes = {"a.1": 1, "b.1": 1}
    few = over(nodes, settings=needed, losses=(("c", LOSSES_MAX - 2),))
    assert few.actions[0].what == "too few nodes: 2 of 3"
    view = {"leader": "a.1", "nodes": nodes, "short": Short(2, 3)}
    made = replace(generation(), arrivals=Arrivals(0, (("c", LOSSES_MAX - 1),)))
    short = view_of(made=made, broken=Broken(1, BreakKind.LOST, "lost c"), seated_at={"c.1": NOW - 3}, **view)
    published = replace(offer("a", 29500), stopped=1)
    me = {"stopped": 1, "published": published, "offer": published}
    assert "c was lost 10 times in a row" in ended_by(lead(short, needed, **me)).reason
    assert lead(short, replace(needed, restarts=RestartLimits(3, policy="always")), **me).actions == ()


def test_a_machine_that_stayed_begins_with_one_loss():
    made = made_by(over({"a.1": 1, "b.1": 1}, losses=(("c", 4),), ran_s=STEADY_S))
    assert dict(made.arrivals.losses) == {"c": 1}


def test_the_time_of_its_lease_after_it_was_killed_does_not_count_as_time_in_the_job():
    last = replace(generation(), lease_s=8.0, arrivals=Arrivals(losses=(("c", 1),)))
    broken = Broken(1, BreakKind.LOST, "lost c", lost=("c.1",))

    def losses(ran_s):
        seated = {"c.1": NOW - ran_s}
        view = view_of(leader="a.1", made=last, broken=broken, nodes={"a.1": 1, "b.1": 1}, seated_at=seated)
        published = replace(offer("a", 29500), stopped=1, lease_s=8.0)
        settings = replace(SETTINGS, lease_s=8.0)
        made = made_by(lead(view, settings=settings, published=published, offer=published, stopped=1))
        return dict(made.arrivals.losses)["c"]

    assert losses(STEADY_S + 7) == 2, "it was killed before"
    assert losses(STEADY_S + 8) == 1


def test_time_as_a_spare_does_not_count_as_time_in_the_job():
    """Or a machine that is held back for long would have a clean slate when it is let in."""
    made = made_by(over({"a.1": 1, "b.1": 1, "c.1": 1}, BreakKind.JOINED, losses=(("c", 7),), seen_at={"c.1": 0.0}))
    assert dict(made.arrivals.losses) == {"c": 7}


def test_a_leader_that_does_not_know_how_long_a_node_had_run_does_not_hold_its_loss_against_it():
    made = made_by(over({"a.1": 1, "b.1": 1}, ran_s=None))
    assert (dict(made.arrivals.losses), made.arrivals.joins) == ({"c": 1}, 0)
    again = made_by(over({"a.1": 1, "b.1": 1}, losses=(("c", 4),), ran_s=None))
    assert dict(again.arrivals.losses) == {"c": 4}


# Nodes that were told their ranks


def test_a_job_whose_nodes_were_told_their_ranks_waits_for_all_of_them_and_counts_no_restart():
    given = replace(SETTINGS, min_nodes=3, max_nodes=3, has_given_ranks=True)
    ranks = {"a.1": 0, "b.1": 1, "c.1": 2, "d.1": 1}
    broken = Broken(1, BreakKind.LOST, "lost b")
    published = replace(offer("a", 29500), stopped=1)
    me = {"stopped": 1, "published": published, "offer": published}
    left = view_of(leader="a.1", made=generation(), broken=broken, nodes={"a.1": 1, "c.1": 1}, ranks=ranks)
    (short,) = lead(left, given, **me).actions
    assert short.what == "too few nodes: 2 of 3"
    nodes = {"a.1": 1, "c.1": 1, "d.1": 0}
    whole = view_of(leader="a.1", made=generation(), broken=broken, nodes=nodes, ranks=ranks)
    made = made_by(lead(whole, given, **me))
    assert ([each.node for each in made.members], made.restarts) == (["a.1", "d.1", "c.1"], 0)
