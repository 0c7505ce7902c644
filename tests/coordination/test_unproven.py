"""Who has to go when too many have not proved themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordination.unproven import Stage, Turns, Unproven, source_of


def test_a_flood_pushes_out_its_own():
    unproven = Unproven()
    unproven.add("honest", "10.0.0.1", 5.0)
    for number in range(100):
        unproven.add(number, "10.0.0.66", 5.0)
    unproven.add("also honest", "10.0.0.2", 5.0)
    gone = []
    while len(unproven) > 3:
        gone.append(unproven.surplus())
        unproven.remove(gone[-1])
    assert gone == list(range(99))
    assert "honest" in unproven
    assert "also honest" in unproven


def test_of_many_with_one_each_the_first_goes():
    unproven = Unproven()
    for number in range(10):
        unproven.add(number, str(number), 5.0)
    assert unproven.surplus() == 0


def test_newcomers_push_out_newcomers_and_not_those_who_have_come_further():
    unproven = Unproven()
    unproven.add("honest", "10.0.0.1", 5.0)
    unproven.advance("honest", Stage.BEGUN)
    unproven.advance("honest", Stage.CONTINUED)
    unproven.advance("honest", Stage.BEGUN)  # it does not go back
    for number in range(100):
        unproven.add(number, str(number), 5.0)
    for number in range(50):
        unproven.advance(number, Stage.BEGUN)
    assert [unproven.count(stage) for stage in Stage] == [50, 50, 1]
    gone = []
    while len(unproven) > 3:
        gone.append(unproven.surplus())
        unproven.remove(gone[-1])
    assert gone[:4] == [50, 0, 51, 1], "the stage with the most loses its oldest"
    assert "honest" in unproven
    assert unproven.surplus(Stage.CONTINUED) == "honest"


def test_those_who_are_gone_do_not_advance():
    unproven = Unproven()
    unproven.advance("nobody", Stage.BEGUN)
    assert unproven.count(*Stage) == len(unproven) == 0
    assert unproven.surplus(Stage.BEGUN) is None


def test_those_whose_time_is_over_are_the_first_ones():
    unproven = Unproven()
    for number in range(4):
        unproven.add(number, "here", float(number))
    late = []
    for connection in unproven.late(2.0):
        late.append(connection)
        unproven.remove(connection)
    assert late == [0, 1, 2]
    assert unproven.next_deadline() == 3.0
    unproven.remove(3)
    unproven.remove(3)
    assert unproven.next_deadline() is None
    assert unproven.surplus() is None


@given(
    st.lists(st.one_of(st.tuples(st.just("add"), st.integers(0, 5)), st.tuples(st.just("remove"), st.integers(0, 40))))
)
def test_the_one_that_goes_is_the_oldest_of_whoever_has_the_most(events):
    unproven, model, last = Unproven(), {}, 0
    for what, number in events:
        if what == "add":
            last += 1
            unproven.add(last, str(number), 0.0)
            model[last] = str(number)
        else:
            unproven.remove(number)
            model.pop(number, None)
        sizes = {source: list(model.values()).count(source) for source in model.values()}
        surplus = unproven.surplus()
        assert len(unproven) == len(model)
        if not model:
            assert surplus is None
        else:
            source = model[surplus]
            assert sizes[source] == max(sizes.values())
            assert surplus == min(connection for connection, of in model.items() if of == source)


def test_sources_take_turns_and_each_has_its_oldest_go_first():
    turns = Turns()
    for number in range(3):
        turns.add(f"flood {number}", "10.0.0.66", b"%d" % number)
    turns.add("honest", "10.0.0.1", b"hello")
    assert len(turns) == 4
    taken = [turns.take() for _ in range(4)]
    assert taken == [("flood 0", b"0"), ("honest", b"hello"), ("flood 1", b"1"), ("flood 2", b"2")]
    assert not turns


def test_the_newest_goes_first_where_that_is_wanted_and_sources_still_take_turns():
    turns = Turns(newest_first=True)
    for number in range(3):
        turns.add(f"flood {number}", "10.0.0.66", b"")
    turns.add("other", "10.0.0.2", b"")
    turns.add("other still", "10.0.0.2", b"")
    assert turns.take()[0] == "other still"
    turns.add("honest", "10.0.0.1", b"hello")
    assert turns.take() == ("honest", b"hello")
    assert [turns.take()[0] for _ in range(4)] == ["flood 2", "other", "flood 1", "flood 0"]
    assert not turns


@pytest.mark.parametrize("newest_first", [False, True])
def test_who_is_gone_has_no_turn(newest_first):
    turns = Turns(newest_first=newest_first)
    for number in range(3):
        turns.add(number, "10.0.0.66", b"")
    turns.add("honest", "10.0.0.1", b"")
    for number in (0, 0, 1, 2, 7):
        turns.remove(number, "10.0.0.66")
    assert len(turns) == 1
    assert turns.take() == ("honest", b"")
    turns.remove("honest", "10.0.0.1")
    assert not turns


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2:ffff::9", "2001:0db8:0001:0002"),
        ("not: an address", "not: an address"),
    ],
)
def test_a_machine_counts_by_the_network_that_may_be_all_its_own(address, source):
    assert source_of(address) == source
