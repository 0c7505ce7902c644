"""The cause of a failed generation, and what follows from it."""

from __future__ import annotations

import pytest
from decisions import NODES, SETTINGS, ended_by, failed, generation, judge, made_by, view_of
from msgspec.structs import replace

from holdfast.errors.kind import FailureKind
from holdfast.rendezvous import judging
from holdfast.rendezvous.records import BreakKind, Broken, Verdict
from holdfast.settings import RestartLimits

# The cause


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


def test_a_node_that_fails_again_and_again_is_left_out_while_the_others_suffice():
    past = {"node": "b.1", "blames": 2, "restarts": 2}
    made = made_by(judge(failed("b.1", 9), **past))
    assert [member.node for member in made.members] == ["a.1", "c.1"]
    assert made.past.left_out == ("b.1",)
    needed = replace(SETTINGS, min_nodes=3)
    assert len(made_by(judge(failed("b.1", 9), settings=needed, **past)).members) == 3


# What a loss is the cause of


def test_a_worker_that_aborts_because_its_peer_is_gone_costs_no_restart():
    for kind in (FailureKind.CRASH, FailureKind.EXIT, FailureKind.HANG, FailureKind.TIMEOUT):
        aborted = failed("a.1", 0, kind)
        made = made_by(judge(aborted, {"a.1": aborted}, nodes=("a.1", "b.1"), max_restarts=0))
        assert (made.restarts, made.after, made.lost) == (0, None, ("c",))


def test_an_exception_of_the_program_is_the_cause_although_a_node_is_lost():
    raised = failed("a.1", 0)
    assert made_by(judge(raised, {"a.1": raised}, nodes=("a.1", "b.1"))).restarts == 1


def test_a_node_that_told_of_its_failure_before_it_was_lost_is_to_blame():
    aborted = failed("c.1", 17, FailureKind.CRASH)
    made = made_by(judge(aborted, nodes=("a.1", "b.1")))
    assert (made.restarts, made.after.cause) == (1, aborted)


def test_a_node_that_goes_after_it_has_stopped_because_of_a_failure_was_not_the_cause_of_it():
    for kind in (FailureKind.CRASH, FailureKind.EXIT, FailureKind.HANG, FailureKind.TIMEOUT):
        left = failed("a.1", 0, kind)
        decision = judge(left, {"a.1": left}, parting=["c.1"], max_restarts=0)
        assert ended_by(decision).failure == left
        made = made_by(judge(left, {"a.1": left}, parting=["c.1"]))
        assert (made.restarts, made.after.cause, made.lost) == (1, left, ())


def test_what_a_node_told_before_it_went_still_counts():
    lost_peer, cause = failed("a.1", 0, FailureKind.COMMUNICATION), failed("c.1", 17, FailureKind.EXCEPTION)
    made = made_by(judge(lost_peer, {"a.1": lost_peer, "c.1": cause}, parting=["c.1"]))
    assert (made.restarts, made.after.cause, made.after.victims) == (1, cause, 1)


# A node that fails where the others are fine

AGAIN = {"where": "train.py:3 in main", "exception": "ValueError", "ran_s": 1.0}


PAST = {"signature": "ValueError at train.py:3 in main", "restarts": 1, "node": "b.1", "blames": 1}


def test_a_node_that_alone_fails_twice_at_the_same_line_is_left_out():
    made = made_by(judge(failed("b.1", 9, **AGAIN), **PAST))
    assert [each.node for each in made.members] == ["a.1", "c.1"]
    assert (made.past.left_out, made.restarts) == (("b.1",), 2)


def test_it_is_the_program_where_another_node_fails_there_or_too_few_are_left():
    assert "twice" in ended_by(judge(failed("b.1", 9, **AGAIN), **{**PAST, "node": "c.1"})).reason
    also = {"b.1": failed("b.1", 9, **AGAIN), "c.1": failed("c.1", 17, **AGAIN)}
    assert "twice" in ended_by(judge(also["b.1"], also, **PAST)).reason
    needed = replace(SETTINGS, min_nodes=3)
    assert "twice" in ended_by(judge(failed("b.1", 9, **AGAIN), settings=needed, **PAST)).reason


def test_a_node_that_lacks_a_module_is_left_out_and_a_syntax_error_ends_the_job():
    missing = failed("b.1", 9, hopeless="a module that is missing", exception="ModuleNotFoundError")
    assert made_by(judge(missing)).past.left_out == ("b.1",)
    assert ended_by(judge(failed("b.1", 9, hopeless="a syntax error", exception="SyntaxError")))


# Without a leader around it


def after(broken, nodes=NODES, failures=None, **made):
    return view_of(made=generation(**made), broken=broken, nodes=dict.fromkeys(nodes, 1), failures=failures)


@pytest.mark.parametrize(
    ("broken", "is_loss"),
    [
        (None, False),
        (Broken(1, BreakKind.JOINED, "letting in d"), False),
        (Broken(1, BreakKind.LEFT, "asked to leave"), False),
        (Broken(1, BreakKind.LOST, "lost c"), True),
        (Broken(1, BreakKind.LOST, "lost c", failed("a.1", 0)), False),
        (Broken(1, BreakKind.FAILED, "failed, and nobody can read how"), False),
    ],
)
def test_a_generation_without_a_failure_has_no_verdict(broken, is_loss):
    view = after(broken)
    assert judging.judge(view, SETTINGS) is None
    assert judging.is_loss(view) is is_loss
    assert judging.judge(view_of(broken=broken), SETTINGS) is None


def test_the_latest_report_of_a_node_counts_and_each_worker_once():
    first, later = failed("a.1", 0, others=1), failed("a.1", 0, others=3)
    verdict = judging.judge(after(Broken(1, BreakKind.FAILED, "", first), failures={"a.1": later}), SETTINGS).verdict
    assert verdict == Verdict(later, 3, generation=1)


def test_a_report_on_another_generation_does_not_count():
    first, stale = failed("a.1", 0, FailureKind.COMMUNICATION), failed("b.1", 9)
    view = after(Broken(1, BreakKind.FAILED, "", first), failures={"b.1": stale})
    view.nodes["b.1"] = replace(view.nodes["b.1"], stopped=0)
    assert judging.judge(view, SETTINGS).verdict == Verdict(first, 0, generation=1)


def test_a_loss_does_not_explain_a_failure_that_cannot_go_away():
    hopeless = failed("a.1", 0, FailureKind.EXIT, hopeless="the program cannot be found")
    view = after(Broken(1, BreakKind.FAILED, "", hopeless), nodes=("a.1", "b.1"), failures={"a.1": hopeless})
    assert not judging.is_loss(view)
    assert judging.judge(view, SETTINGS).verdict.cause == hopeless


def test_one_failure_that_no_loss_explains_is_enough_to_be_judged():
    aborted, killed = failed("a.1", 0, FailureKind.CRASH), failed("b.1", 9, FailureKind.KILLED)
    broken = Broken(1, BreakKind.FAILED, "", aborted)
    both = {"a.1": aborted, "b.1": killed}
    assert judging.is_loss(after(broken, ("a.1", "b.1"), {"a.1": aborted}))
    assert not judging.is_loss(after(broken, ("a.1", "b.1"), both))


def test_the_budget_is_that_of_the_generation_and_not_of_the_leader():
    cause = failed("a.1", 0)
    view = after(Broken(1, BreakKind.FAILED, "", cause), max_restarts=0)
    assert not judging.judge(view, replace(SETTINGS, restarts=RestartLimits(9))).ruling.restarts
    view = after(Broken(1, BreakKind.FAILED, "", cause), max_restarts=1)
    assert judging.judge(view, replace(SETTINGS, restarts=RestartLimits(0))).ruling.restarts


def test_nodes_that_were_left_out_before_do_not_suffice():
    """Without b and c, only a is left, and two nodes are needed."""
    missing = failed("b.1", 9, hopeless="a module that is missing", exception="a.ModuleNotFoundError")
    broken = Broken(1, BreakKind.FAILED, "", missing)
    assert judging.judge(after(broken), SETTINGS).ruling.restarts
    assert not judging.judge(after(broken, left_out=("c.1",)), SETTINGS).ruling.restarts
