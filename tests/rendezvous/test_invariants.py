"""The laws of simulated worlds can be broken: each bug that is planted here is found by some seed."""

from __future__ import annotations

from msgspec.structs import replace
from simulated_storms import run

from holdfast.rendezvous import decide as rules
from holdfast.rendezvous import membership
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.restarts import Ruling

SEEDS = 400


def finds(mix, *, first=0, seeds=SEEDS):
    """What the first world of that weather that fails says; a rare one is sought from near where it was last seen."""
    for seed in range(first, first + seeds):
        try:
            run(mix, seed)
        except AssertionError as error:
            return str(error)
    return f"nothing, with {seeds} seeds"


def test_a_leader_that_does_not_wait_for_workers_to_stop_is_found(monkeypatch):
    form = rules._form

    def impatient(view, *others):
        view.stopping.clear()
        return form(view, *others)

    monkeypatch.setattr(rules, "_form", impatient)
    assert "while workers of" in finds("failures")


def test_a_node_that_never_fences_is_found(monkeypatch):
    monkeypatch.setattr(membership, "STOP_AT", 100.0)
    monkeypatch.setattr(membership, "FENCE_AT", 100.0)
    assert "while workers of" in finds("cuts")


def test_a_keeper_that_waits_for_its_agent_is_found(monkeypatch):
    monkeypatch.setattr(membership, "FENCE_AT", 100.0)
    assert "while workers of" in finds("pauses")


def test_a_node_that_starts_workers_when_its_lease_may_be_over_is_found(monkeypatch):
    seek = rules._seek_a_place

    def careless(view, me, *others):
        decision = seek(view, replace(me, stop_by=float("inf")), *others)
        return replace(decision, me=replace(decision.me, stop_by=me.stop_by))

    monkeypatch.setattr(rules, "_seek_a_place", careless)
    assert "while workers of" in finds("slow")


def test_a_generation_without_guards_is_found(monkeypatch):
    monkeypatch.setattr(rules, "_as_leader", lambda *_: ())
    assert "generation" in finds("echoes")


def test_a_break_without_guards_is_found(monkeypatch):
    monkeypatch.setattr(rules, "_still_on", lambda *_: ())
    assert "broken" in finds("storm")


def test_a_budget_that_is_not_kept_is_found(monkeypatch):
    monkeypatch.setattr(rules, "rule", lambda past, _fault, _limits: Ruling(past))
    assert "is restart" in finds("failures")


def test_survivors_that_change_places_are_found(monkeypatch):
    seat = rules.seat
    monkeypatch.setattr(rules, "seat", lambda *arguments: seat(*arguments)[::-1])
    assert " after " in finds("failures")


def test_more_nodes_than_there_are_places_are_found(monkeypatch):
    seat = rules.seat
    monkeypatch.setattr(rules, "seat", lambda previous, nodes, ages, _: seat(previous, nodes, ages, 1_000))
    assert " nodes" in finds("calm")


def test_a_group_that_nobody_leads_is_found(monkeypatch):
    registration = rules.registration
    monkeypatch.setattr(rules, "_claim", registration)
    assert "still here" in finds("calm")


def test_a_late_answer_that_is_taken_for_another_is_found(monkeypatch):
    lease_lost = Membership.lease_lost
    monkeypatch.setattr(Membership, "lease_lost", lambda self, _effect: lease_lost(self))
    assert "twice" in finds("pauses")


def test_what_comes_late_and_takes_back_what_was_said_is_found(monkeypatch):
    offer = rules._offer

    def careless(*arguments):
        decision = offer(*arguments)
        actions = tuple(
            replace(action, transaction=replace(action.transaction, compares=()))
            if isinstance(action, rules.Propose) and action.what == "ready"
            else action
            for action in decision.actions
        )
        return replace(decision, actions=actions)

    monkeypatch.setattr(rules, "_offer", careless)
    assert "no generation is on" in finds("echoes", first=580, seeds=2_000)
