"""Seats: survivors keep their order, ranks that are asked for are given, nobody sits twice or leaves a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.rendezvous.seating import holders, seat

NO_RANK = st.just(-1)
NAMES = st.sampled_from([f"{letter}.1" for letter in "abcdefghij"])


@st.composite
def groups(draw, ranks=NO_RANK):
    """Former members, who is there now with what rank it asks for, how old each is, and how many places there are."""
    previous = draw(st.lists(NAMES, unique=True))
    there = draw(st.lists(NAMES, unique=True))
    nodes = {name: offer(name, 1, draw(ranks)) for name in there}
    ages = dict(zip(there, draw(st.permutations(range(len(there)))), strict=True))
    return previous, nodes, ages, draw(st.integers(1, 12))


@given(groups(st.integers(-1, 12)))
def test_everybody_sits_once_and_all_places_are_used(group):
    _, nodes, _, places = group
    seats = seat(*group)
    assert len(set(seats)) == len(seats) == min(len(nodes), places)
    assert set(seats) <= nodes.keys()


@given(groups())
def test_survivors_come_first_and_in_their_order_and_others_by_age(group):
    previous, nodes, ages, _ = group
    seats = seat(*group)
    survivors = [node for node in previous if node in nodes]
    newcomers = sorted(nodes.keys() - set(survivors), key=ages.__getitem__)
    assert seats == (survivors + newcomers)[: len(seats)]


@given(groups(st.integers(-1, 12)))
def test_a_survivor_never_gives_its_place_to_a_newcomer(group):
    previous, nodes, _, places = group
    survivors = [node for node in previous if node in nodes]
    assert set(survivors[:places]) <= set(seat(*group))


@given(groups(st.integers(-1, 12)))
def test_a_rank_that_one_node_asks_for_is_its_own_if_there_is_such_a_place(group):
    _, nodes, _, _ = group
    seats = seat(*group)
    asked = {}
    for node in seats:
        asked.setdefault(nodes[node].rank, []).append(node)
    ranks = [rank for rank in asked if rank >= 0]
    if max(ranks, default=0) < len(seats):
        for rank in ranks:
            assert seats[rank] in asked[rank]


@given(groups(st.integers(-1, 12)))
def test_those_that_ask_stand_in_the_order_of_what_they_ask_for(group):
    _, nodes, _, _ = group
    seats = seat(*group)
    asked = [nodes[node].rank for node in seats if nodes[node].rank >= 0]
    if len(set(asked)) == len(asked):
        assert asked == sorted(asked)


@given(groups(st.integers(-1, 12)))
def test_seats_do_not_depend_on_the_order_in_which_nodes_are_listed(group):
    previous, nodes, ages, places = group
    backwards = dict(reversed(nodes.items()))
    assert seat(previous, nodes, ages, places) == seat(previous, backwards, ages, places)


@given(groups(st.integers(-1, 12)))
def test_those_who_sit_keep_their_seats_if_nothing_changes(group):
    _, nodes, ages, places = group
    seats = seat(*group)
    still_there = {node: nodes[node] for node in seats}
    assert seat(seats, still_there, ages, places) == seats


def test_without_nodes_there_are_no_seats():
    assert seat(["a.1"], {}, {}, 4) == []


@given(groups(st.integers(0, 12)))
def test_each_rank_is_held_by_the_oldest_that_asks_for_it(group):
    _, nodes, ages, _ = group
    held = holders(nodes, ages)
    assert held.items() <= nodes.items()
    for rank in {node.rank for node in nodes.values()}:
        asking = [name for name, node in nodes.items() if node.rank == rank]
        assert [name for name in held if held[name].rank == rank] == [min(asking, key=ages.__getitem__)]


@given(groups(st.integers(0, 12)))
def test_holders_of_all_ranks_sit_as_they_were_told(group):
    previous, nodes, ages, _ = group
    held = holders(nodes, ages)
    ranks = {rank: place for place, rank in enumerate(sorted(node.rank for node in held.values()))}
    given = {name: replace(node, rank=ranks[node.rank]) for name, node in held.items()}
    seats = seat(previous, given, ages, len(given) or 1)
    assert [given[name].rank for name in seats] == list(range(len(given)))


def test_a_node_of_the_same_age_has_one_holder_whatever_the_order():
    nodes = {"b.1": offer("b", 1, 0), "a.1": offer("a", 1, 0)}
    assert list(holders(nodes, {"a.1": 5, "b.1": 5})) == ["a.1"]
