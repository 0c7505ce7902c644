"""The laws of simulated worlds can be broken: each bug that is planted here is found by some seed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from simulated_storms import NOT_YET, run

from holdfast.rendezvous import decide, decision, judging, leader_rules, membership, node_rules, refusals
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.restarts import Ruling
from holdfast.rendezvous.view import View

SEEDS = 400


def finds(mix, *, first=0, seeds=SEEDS, saying="", **planted):
    """What the first world of that weather that fails says; a rare one is sought from near where it was last seen.

    `saying` is what it has to say, where a bug breaks several laws. `planted` are attributes of the world: what its
    edges do otherwise than the product's.
    """

    def prepare(world):
        for name, value in planted.items():
            assert hasattr(world, name)
            setattr(world, name, value)

    for seed in range(first, first + seeds):
        try:
            run(mix, seed, prepare=prepare)
        except AssertionError as error:
            if saying in str(error):
                return str(error)
    return f"nothing, with {seeds} seeds"


def test_a_leader_that_does_not_wait_for_workers_to_stop_is_found(monkeypatch):
    form = leader_rules._form

    def impatient(view, *others):
        view.stopping.clear()
        return form(view, *others)

    monkeypatch.setattr(leader_rules, "_form", impatient)
    assert "while workers of" in finds("failures")


def test_a_node_that_never_fences_is_found(monkeypatch):
    monkeypatch.setattr(membership, "STOP_AT", 100.0)
    monkeypatch.setattr(membership, "FENCE_AT", 100.0)
    assert "while workers of" in finds("cuts")


def test_a_keeper_that_waits_for_its_agent_is_found(monkeypatch):
    monkeypatch.setattr(membership, "FENCE_AT", 100.0)
    assert "while workers of" in finds("pauses")


def test_a_node_that_starts_workers_when_its_lease_may_be_over_is_found(monkeypatch):
    seek = node_rules._seek_a_place

    def careless(view, me, *others):
        decision = seek(view, replace(me, stop_by=float("inf")), *others)
        return replace(decision, me=replace(decision.me, stop_by=me.stop_by))

    monkeypatch.setattr(node_rules, "_seek_a_place", careless)
    assert "while workers of" in finds("slow", agent_heeds_the_fence=False)


def test_a_generation_without_guards_is_found(monkeypatch):
    monkeypatch.setattr(leader_rules, "as_leader", lambda *_: ())
    assert "generation" in finds("echoes")


def test_a_break_without_guards_is_found(monkeypatch):
    monkeypatch.setattr(decision, "still_on", lambda *_: ())
    monkeypatch.setattr(node_rules, "still_on", lambda *_: ())
    assert "broken" in finds("storm")


def test_a_budget_that_is_not_kept_is_found(monkeypatch):
    monkeypatch.setattr(judging, "rule", lambda past, _fault, _limits, **_: Ruling(past))
    assert "is restart" in finds("failures")


def test_survivors_that_change_places_are_found(monkeypatch):
    seat = leader_rules.seat
    monkeypatch.setattr(leader_rules, "seat", lambda *arguments: seat(*arguments)[::-1])
    assert " after " in finds("failures")


def test_more_nodes_than_there_are_places_are_found(monkeypatch):
    seat = leader_rules.seat
    monkeypatch.setattr(leader_rules, "seat", lambda previous, nodes, ages, _: seat(previous, nodes, ages, 1_000))
    assert " nodes" in finds("calm")


def test_a_group_that_nobody_leads_is_found(monkeypatch):
    registration = decide.registration
    monkeypatch.setattr(decide, "_claim", lambda _, me, keys: decision.Propose(registration(me, keys), "lead"))
    assert "still here" in finds("calm")


def test_a_late_answer_that_is_taken_for_another_is_found(monkeypatch):
    lease_lost = Membership.lease_lost
    monkeypatch.setattr(Membership, "lease_lost", lambda self, _effect: lease_lost(self))
    assert "twice" in finds("pauses")


def test_what_comes_late_and_takes_back_what_was_said_is_found(monkeypatch):
    offer = node_rules._offer

    def careless(*arguments):
        decided = offer(*arguments)
        actions = tuple(
            replace(action, transaction=replace(action.transaction, compares=()))
            if isinstance(action, decision.Propose) and action.what == "ready"
            else action
            for action in decided.actions
        )
        return replace(decided, actions=actions)

    monkeypatch.setattr(node_rules, "_offer", careless)
    monkeypatch.setattr(node_rules, "SAY_AGAIN_S", float("inf"))  # or it would be said again before anybody minds
    found = finds("echoes", first=580, seeds=2_000)
    assert "no generation is on" in found or "waiting for the workers" in found


def test_a_client_that_takes_another_store_for_its_own_is_found():
    found = finds("replaced", client_checks_identity=False)
    assert "another store" in found or "while workers of" in found


def test_an_agent_that_starts_workers_that_have_to_stop_already_is_found():
    assert "while workers of" in finds("late_threads", agent_looks_ahead=False, agent_heeds_the_fence=False)


def test_a_lease_that_is_given_back_before_the_workers_are_dead_is_found():
    assert "while workers of" in finds("deaths", will_is_first=True)


def test_a_store_that_takes_a_broken_connection_for_a_lost_node_is_found():
    assert "while workers of" in finds("resets", reset_shortens_leases=True)


def test_a_node_that_goes_on_without_its_record_is_found(monkeypatch):
    reason_to_stop = node_rules._reason_to_stop

    def careless(*arguments):
        stop = reason_to_stop(*arguments)
        return None if stop is not None and stop.reason in (decision.RECORD_GONE, decision.RECORD_REPLACED) else stop

    monkeypatch.setattr(node_rules, "_reason_to_stop", careless)
    assert "while workers of" in finds("restored", saying="while workers of", client_checks_revision=False)


def test_a_node_that_ignores_that_the_store_is_full_is_found():
    assert "found to be full" in finds("full", saying="found to be full", agent_ends_when_refused=False)


def test_a_leader_that_lets_everybody_in_at_once_is_found(monkeypatch):
    monkeypatch.setattr(
        leader_rules,
        "admits_at",
        lambda _arrivals, newcomers, since, _lease_s: {node: since[node] for node in newcomers},
    )
    monkeypatch.setattr(leader_rules, "batch_s", lambda _joins: 0.0)
    monkeypatch.setattr(leader_rules, "hold_back_s", lambda *_: 0.0)
    assert "came and went" in finds("flapping")


def test_a_leader_that_goes_by_its_own_budget_is_found(monkeypatch):
    next_generation = leader_rules._next_generation

    def forgetful(view, me, last, judged, nodes, now, settings, keys):
        last = last and replace(last, max_restarts=settings.max_restarts)
        return next_generation(view, me, last, judged, nodes, now, settings, keys)

    monkeypatch.setattr(leader_rules, "_next_generation", forgetful)
    assert "is restart" in finds("differing")


def test_a_timeout_that_runs_while_workers_stop_is_found(monkeypatch):
    say_whether_short = leader_rules._say_whether_short

    def hasty(view, _present, settings, keys):
        return say_whether_short(view, 0, settings, keys)

    monkeypatch.setattr(leader_rules, "_say_whether_short", hasty)
    assert "leaves while enough nodes are there" in finds("slow_stops")


def test_a_job_that_ends_because_one_node_fails_is_found(monkeypatch):
    monkeypatch.setattr(judging, "_others_suffice", lambda *_: False)
    assert "with restarts left" in finds("bad_node")


def test_a_restart_that_is_charged_for_a_lost_node_is_found(monkeypatch):
    monkeypatch.setattr(judging, "is_loss", lambda _view: False)
    found = finds("felt_losses")
    assert "is restart" in found or "failed of a lost node" in found


def test_a_job_that_is_begun_anew_while_its_nodes_are_there_is_found(monkeypatch):
    monkeypatch.setattr(leader_rules, "is_of_the_past", lambda view: view.generation is not None)
    assert "begins another job" in finds("failures")


def test_a_node_that_is_done_and_leaves_without_the_end_is_found(monkeypatch):
    my_part = decide.my_part

    def hasty(view, me, *others):
        decided = my_part(view, me, *others)
        leaves = any(isinstance(action, decision.Leave) for action in decided.actions)
        return replace(decided, actions=(decision.Leave(None, "in a hurry"),)) if leaves else decided

    monkeypatch.setattr(decide, "my_part", hasty)
    assert "is done and recorded" in finds("calm")


def test_a_leader_that_does_not_see_who_is_there_is_found(monkeypatch):
    learn_node = View._learn_node

    def blind(self, node, entry):
        if entry is not None or node in self._members:
            learn_node(self, node, entry)

    monkeypatch.setattr(View, "_learn_node", blind)
    assert "does not see the nodes" in finds("scaling")


def test_two_nodes_of_the_same_rank_in_one_generation_are_found(monkeypatch):
    monkeypatch.setattr(leader_rules, "admissible", lambda view, _settings: view.nodes)
    found = finds("given_ranks")
    assert "that were told the ranks" in found or "nodes" in found


def test_a_replacement_that_is_refused_before_the_lost_node_is_gone_is_found(monkeypatch):
    monkeypatch.setattr(refusals, "RANK_TAKEN_LEASES", 0.9)
    assert "is refused after 9" in finds("given_ranks")


def test_a_node_that_takes_the_rank_of_an_older_one_is_found(monkeypatch):
    holders = refusals.holders
    monkeypatch.setattr(
        refusals, "holders", lambda nodes, ages: holders(nodes, {node: -age for node, age in ages.items()})
    )
    assert "nobody else has its rank for longer" in finds("given_ranks")


def test_a_second_node_of_a_rank_that_is_never_refused_is_found(monkeypatch):
    monkeypatch.setattr(refusals, "_with_a_taken_rank", lambda *_: None)
    assert "another node has its rank" in finds("given_ranks")


def test_a_rank_that_is_not_as_given_is_found(monkeypatch):
    seat = leader_rules.seat
    monkeypatch.setattr(leader_rules, "seat", lambda *group: seat(*group)[::-1])
    assert "that were told the ranks" in finds("given_ranks")


@pytest.mark.parametrize("mix", NOT_YET)
def test_what_the_product_does_not_do_yet_is_found(mix):
    assert "nothing" not in finds(mix), f"{mix} is repaired: remove it from NOT_YET"
