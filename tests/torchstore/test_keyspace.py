"""What each operation does to keys, values and queues."""

from __future__ import annotations

import pytest
from store_peer import (
    I64,
    U32,
    U64,
    add,
    append,
    barrier,
    cancel_wait,
    check,
    compare_set,
    delete,
    get,
    list_keys,
    multi_get,
    multi_set,
    num_keys,
    ping,
    pop,
    push,
    queue_len,
    set_,
    text,
    wait,
)

from holdfast.torchstore.keyspace import KeySpace
from holdfast.torchstore.requests import _READERS
from holdfast.torchstore.waits import Peer
from holdfast.torchstore.wire import SMALL_BYTES, ProtocolError

READY, NOT_READY, STOP, CANCELED = b"\0", b"\1", b"\0", b"\1"


class Asker(Peer):
    def __init__(self, space):
        super().__init__()
        self.space = space

    def ask(self, *requests):
        """Carry them out, and return all replies that are there then."""
        for request in requests:
            fields, end = _READERS[request[0]](request, 1)
            assert end == len(request)
            self.space.operations[request[0]](self, *fields)
        return self.said()

    def said(self):
        said = b"".join(self.out)
        self.out.clear()
        return said


@pytest.fixture
def space():
    return KeySpace()


@pytest.fixture
def one(space):
    return Asker(space)


@pytest.fixture
def two(space):
    return Asker(space)


def test_a_value_is_what_was_set_last(one):
    assert one.ask(get(b"k")) == text(b"")
    assert one.ask(set_(b"k", b"1"), get(b"k")) == text(b"1")
    assert one.ask(set_(b"k", b"2"), get(b"k")) == text(b"2")
    assert one.ask(set_(b"", b"x"), get(b"")) == text(b"x")


def test_a_large_value_is_not_copied(one):
    value = b"x" * (SMALL_BYTES + 1)
    one.space.operations[1](one, b"k", value)
    one.space.operations[3](one, b"k")
    assert one.out[-1] is value


@pytest.mark.parametrize(
    ("before", "expected", "reply", "after"),
    [
        (None, b"", b"new", b"new"),
        (None, b"old", b"old", b""),
        (b"old", b"old", b"new", b"new"),
        (b"old", b"other", b"old", b"old"),
        (b"old", b"", b"old", b"old"),
        (b"", b"", b"new", b"new"),
        (b"", b"old", b"", b""),
    ],
)
def test_compare_set(one, before, expected, reply, after):
    if before is not None:
        one.ask(set_(b"k", before))
    assert one.ask(compare_set(b"k", expected, b"new")) == text(reply)
    assert one.ask(get(b"k")) == text(after)


def test_add_counts_in_decimal_digits(one):
    assert one.ask(add(b"n", 5)) == I64.pack(5)
    assert one.ask(add(b"n", -7), get(b"n")) == I64.pack(-2) + text(b"-2")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"12abc", 12),
        (b" \t\n\v\f\r12", 12),
        (b"+5", 5),
        (b"-3", -3),
        (b"0x10", 0),
        (b"1.5", 1),
        (b"1_0", 1),
        (b"00012", 12),
        (b"1\x00", 1),
        (b"9223372036854775806", (1 << 63) - 2),
    ],
)
def test_add_reads_numbers_as_c_does(one, value, number):
    assert one.ask(set_(b"n", value), add(b"n", 1)) == I64.pack(number + 1)


def test_a_sum_beyond_64_bits_goes_round(one):
    assert one.ask(set_(b"n", b"9223372036854775807"), add(b"n", 1)) == I64.pack(-(1 << 63))
    assert one.ask(add(b"n", -1), get(b"n")) == I64.pack((1 << 63) - 1) + text(b"9223372036854775807")


@pytest.mark.parametrize("value", [b"", b"abc", b"--1", b"- 1", b"\x0012", b"9223372036854775808", b"9" * 5000])
@pytest.mark.parametrize("request_", [add(b"n", 1), barrier(b"n", 1)])
def test_what_is_no_number_cannot_be_added_to(one, value, request_):
    one.ask(set_(b"n", value))
    with pytest.raises(ProtocolError, match="not a 64-bit number"):
        one.ask(request_)
    assert one.ask(get(b"n")) == text(value)


def test_append_makes_and_lengthens(one):
    assert one.ask(append(b"k", b"x"), append(b"k", b"yz"), get(b"k")) == text(b"xyz")


def test_delete_says_how_many_are_gone(one):
    assert one.ask(set_(b"k", b""), delete(b"k"), delete(b"k")) == I64.pack(1) + I64.pack(0)


def test_several_at_once(one):
    assert one.ask(multi_set((b"a", b"1"), (b"b", b"2")), multi_get(b"b", b"no", b"a")) == b"".join(
        map(text, (b"2", b"", b"1"))
    )
    assert one.ask(multi_set(), multi_get()) == b""


def test_keys_are_counted_and_listed_without_queues(one):
    one.ask(set_(b"a", b""), push(b"q", b""), set_(b"init/", b"1"))
    assert one.ask(num_keys()) == I64.pack(2)
    assert one.ask(list_keys()) == U64.pack(2) + text(b"a") + text(b"init/")


def test_ping_returns_its_number(one):
    assert one.ask(ping(0xFFFFFFFF)) == U32.pack(0xFFFFFFFF)


# Waiting


def test_check_wants_all_keys(one):
    one.ask(set_(b"a", b""))
    assert one.ask(check(b"a")) == READY
    assert one.ask(check(b"a", b"b")) == NOT_READY
    assert one.ask(check()) == READY


def test_a_wait_for_what_is_there_is_over(one):
    assert one.ask(set_(b"a", b""), wait(b"a")) == STOP
    assert one.ask(wait()) == STOP


@pytest.mark.parametrize(
    "making",
    [set_(b"k", b""), add(b"k", 1), compare_set(b"k", b"", b"v"), append(b"k", b""), multi_set((b"k", b""))],
)
def test_whatever_makes_the_key_wakes_all(space, one, two, making):
    three = Asker(space)
    assert one.ask(wait(b"k")) == two.ask(wait(b"k")) == b""
    three.ask(making)
    assert (one.said(), two.said(), space.woken) == (STOP, STOP, [one, two])


def test_a_reply_comes_after_the_end_of_a_wait_that_the_request_ended(one):
    assert one.ask(wait(b"k"), add(b"k", 1)) == STOP + I64.pack(1)


def test_a_compare_set_that_makes_nothing_wakes_nobody(one, two):
    one.ask(wait(b"k"))
    two.ask(compare_set(b"k", b"x", b"y"))
    assert one.said() == b""


def test_a_key_that_came_and_went_has_been_there(one, two):
    one.ask(wait(b"a", b"b"))
    two.ask(set_(b"a", b""), delete(b"a"), set_(b"b", b""))
    assert one.said() == STOP


def test_a_wait_that_is_cancelled_has_no_other_end(space, one, two):
    assert one.ask(wait(b"k"), cancel_wait()) == CANCELED
    two.ask(set_(b"k", b""))
    assert (one.said(), space.woken) == (b"", [])
    assert one.ask(cancel_wait()) == CANCELED


def test_two_waits_end_by_themselves(one, two):
    one.ask(wait(b"a"), wait(b"b", b"c"))
    two.ask(set_(b"b", b""))
    assert one.said() == b""
    two.ask(set_(b"c", b""))
    assert one.said() == STOP
    two.ask(set_(b"a", b""))
    assert one.said() == STOP


def test_nothing_is_left_of_who_leaves(space, one, two):
    one.ask(wait(b"a", b"b"), barrier(b"c", 2))
    space.leave(one)
    two.ask(set_(b"a", b""), set_(b"b", b""), set_(b"c", b""))
    assert (one.said(), len(space._waits)) == (b"", 0)


# Barriers


def test_a_barrier_opens_with_the_last_who_comes(space, one, two):
    three = Asker(space)
    assert one.ask(barrier(b"b", 3)) == two.ask(barrier(b"b", 3)) == b""
    assert three.ask(barrier(b"b", 3)) == STOP
    assert (one.said(), two.said()) == (STOP, STOP)


def test_who_comes_late_finds_the_barrier_open(one):
    assert one.ask(barrier(b"b", 1), barrier(b"b", 1), get(b"b")) == STOP + STOP + text(b"2")


@pytest.mark.parametrize("count", [1, 0, -1])
def test_a_barrier_for_one_does_not_hold(one, count):
    assert one.ask(barrier(b"b", count)) == STOP


# Queues


def test_a_queue_gives_the_oldest_and_says_how_many_there_were(one):
    assert one.ask(pop(b"q"), queue_len(b"q")) == I64.pack(0) + I64.pack(0)
    one.ask(push(b"q", b"a"), push(b"q", b"b"))
    assert one.ask(queue_len(b"q")) == I64.pack(2)
    assert one.ask(pop(b"q")) == I64.pack(2) + text(b"a")
    assert one.ask(pop(b"q")) == I64.pack(1) + text(b"b")
    assert one.ask(pop(b"q"), queue_len(b"q")) == I64.pack(0) + I64.pack(0)


def test_a_queue_is_there_while_it_has_something(one):
    assert one.ask(push(b"q", b"a"), check(b"q"), wait(b"q")) == READY + STOP
    assert one.ask(pop(b"q"), check(b"q"))[-1:] == NOT_READY


def test_a_queue_and_a_value_of_the_same_name_are_two_things(one):
    one.ask(push(b"k", b"a"), set_(b"k", b"v"))
    assert one.ask(get(b"k"), queue_len(b"k")) == text(b"v") + I64.pack(1)
    assert one.ask(delete(b"k"), queue_len(b"k"), check(b"k")) == I64.pack(1) + I64.pack(1) + READY
    assert one.ask(delete(b"k")) == I64.pack(0)


def test_a_push_wakes_one(one, two):
    one.ask(wait(b"q"))
    two.ask(wait(b"q"))
    Asker(one.space).ask(push(b"q", b"a"))
    assert (one.said(), two.said()) == (STOP, b"")
    Asker(one.space).ask(push(b"q", b"b"))
    assert (one.said(), two.said()) == (b"", STOP)


def test_a_wait_for_a_queue_that_is_there_and_a_key_is_for_the_key(one, two):
    two.ask(push(b"q", b"a"))
    assert one.ask(wait(b"q", b"k")) == b""
    two.ask(set_(b"k", b""))
    assert one.said() == STOP


def test_a_wait_for_a_queue_in_the_past_does_not_end_one_for_something_else(one, two):
    assert one.ask(wait(b"q"), push(b"q", b"a"), pop(b"q")).startswith(STOP)
    assert one.ask(wait(b"k")) == b""
    two.ask(push(b"q", b"b"))
    assert one.said() == b""
