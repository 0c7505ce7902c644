"""What the records of a report add up to."""

from __future__ import annotations

import pytest
import written_runs

from holdfast.errors.failure import Failure
from holdfast.report.entries import read_log
from holdfast.report.joining import run_of
from holdfast.report.records import Activity, Attempt, Node, Outcome, Round, Run, Span
from holdfast.report.timeline import node_of
from holdfast.run_directory import RunDirectory


def told(written, presence=None):
    return node_of(read_log(RunDirectory(written.directory)), written.directory, presence)


def test_nodes_are_aligned_by_the_attempts_that_they_share_whatever_their_clocks_say(tmp_path):
    run = run_of([told(written) for written in written_runs.four_nodes(tmp_path)])
    begins = {
        round(node.attempts[0].begin_s + offset, 6) for node, offset in zip(run.nodes, run.offsets_s(), strict=True)
    }
    assert len(begins) == 1
    assert min(run.offsets_s()) == 0


def test_agents_are_aligned_through_others_in_whichever_order_they_come(tmp_path):
    """The first two share no attempt. Only the third has one with each of them."""
    one, _, lost, back = (told(written) for written in written_runs.three_machines(tmp_path))
    run = Run(run_id="", outcome=Outcome.SUCCEEDED, nodes=[lost, back, one])
    begins = dict(zip(("lost", "back", "one"), run.offsets_s(), strict=True))
    assert begins["lost"] == pytest.approx(begins["one"])
    assert begins["back"] + back.attempts[0].begin_s == pytest.approx(begins["one"] + one.attempts[2].begin_s)


def test_an_attempt_has_the_same_key_on_every_node():
    assert Attempt(number=3, generation=7).key == ("generation", 7)
    assert Attempt(number=3).key == ("attempt", 3)
    assert Node(directory="").key is None
    assert Node(directory="", attempts=[Attempt(number=1), Attempt(number=2)]).key == ("attempt", 2)


def test_the_time_of_a_run_is_that_of_all_its_nodes():
    spans = [Span(activity=Activity.WAITING, begin_s=0, end_s=2), Span(activity=Activity.TRAINING, begin_s=2, end_s=9)]
    nodes = [Node(directory="", spans=spans), Node(directory="", spans=spans), Node(directory="")]
    spent = Run(run_id="", outcome=Outcome.SUCCEEDED, nodes=nodes).time_s()
    assert (spent[Activity.WAITING], spent[Activity.TRAINING], spent[Activity.LOST]) == (4, 14, 0)
    assert nodes[2].time_s() == {}


def test_an_attempt_has_as_many_nodes_as_any_of_them_knows_of():
    known = {0: Attempt(number=1, nodes=4, world_size=8), 1: Attempt(number=1)}
    assert (Round(key=("attempt", 1), attempts=known).size(), Round(key=("attempt", 1), attempts={}).size()) == (4, 0)
    assert Round(key=("attempt", 1), attempts=known).world_size() == 8


def test_failures_of_an_attempt_are_in_the_order_of_ranks():
    attempts = {place: Attempt(number=1, failures=[Failure(rank=rank)]) for place, rank in enumerate((5, 1, 3))}
    assert [each.rank for each in Round(key=("attempt", 1), attempts=attempts).failures()] == [1, 3, 5]


def test_an_agent_that_came_back_is_no_further_node():
    rounds = [Round(key=("generation", n), attempts={}) for n in (1, 2)]
    for each, size in zip(rounds, (3, 2), strict=True):
        each.attempts[0] = Attempt(number=1, nodes=size)
    run = Run(run_id="", outcome=Outcome.LOST, nodes=[Node(directory="")] * 4, rounds=rounds)
    assert run.nodes_at_once() == 3
    assert Run(run_id="", outcome=Outcome.LOST, nodes=[Node(directory="")] * 4).nodes_at_once() == 4
