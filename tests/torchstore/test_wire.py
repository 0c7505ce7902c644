"""How replies are written, and that the words of the protocol are torch's."""

from __future__ import annotations

from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.torchstore import wire
from holdfast.torchstore.wire import EMPTY, PART_BYTES, PART_STRINGS, SMALL_BYTES, Strings, put_string

OPERATIONS = (
    *("VALIDATE", "SET", "COMPARE_SET", "GET", "ADD", "CHECK", "WAIT", "GETNUMKEYS", "DELETE_KEY", "APPEND"),
    *("MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING", "QUEUE_PUSH", "QUEUE_POP", "QUEUE_LEN", "LIST_KEYS", "BARRIER"),
)


def strings_in(data):
    """A reader of its own, from torch's description: a little-endian u64, and so many bytes."""
    found, at = [], 0
    while at < len(data):
        (size,) = unpack_from("<Q", data, at)
        found.append(data[at + 8 : at + 8 + size])
        assert len(found[-1]) == size
        at += 8 + size
    return found


def parts_of(strings):
    """The parts of a long reply, as numbers of strings, and all bytes."""
    out, counts = [], []
    is_more = True
    while is_more:
        before = len(strings.rest())
        is_more = strings.put_part(out)
        counts.append(before - len(strings.rest()))
    return counts, b"".join(out)


def test_the_numbers_are_those_of_torchs_query_types():
    assert [getattr(wire, name) for name in OPERATIONS] == list(range(wire.OPERATION_COUNT))


def test_the_first_word_is_torchs():
    assert wire.U32.pack(wire.MAGIC) == b"\xce\xf7\x85\x3c"


def test_numbers_are_little_endian_and_their_size_is_fixed():
    assert (wire.U32.pack(1), wire.U64.pack(1)) == (b"\1\0\0\0", b"\1" + bytes(7))
    assert wire.I64.pack(-2) == b"\xfe" + b"\xff" * 7


def test_a_wait_that_ended_and_one_that_was_cancelled_differ():
    assert wire.STOP_WAITING != wire.WAIT_CANCELED
    assert wire.READY != wire.NOT_READY


@given(st.lists(st.binary(max_size=50)))
def test_what_was_written_is_read_again(strings):
    out = []
    for each in strings:
        put_string(each, out)
    assert strings_in(b"".join(out)) == strings


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES, SMALL_BYTES + 1])
def test_a_small_string_is_one_piece_and_a_large_one_is_not_copied(size):
    value, out = b"x" * size, []
    put_string(value, out)
    assert strings_in(b"".join(out)) == [value]
    assert len(out) == 1 + (size > SMALL_BYTES)
    assert (out[-1] is value) == (size > SMALL_BYTES)


def test_the_empty_string():
    out = []
    put_string(b"", out)
    assert out == [EMPTY]


class TestLongReplies:
    @pytest.mark.parametrize("count", [1, PART_STRINGS - 1, PART_STRINGS, PART_STRINGS + 1, 3 * PART_STRINGS])
    def test_so_many_strings_come_at_a_time(self, count):
        strings = [b"%d" % number for number in range(count)]
        counts, data = parts_of(Strings(strings))
        assert strings_in(data) == strings
        assert max(counts) <= PART_STRINGS
        assert len(counts) == -(-count // PART_STRINGS)

    def test_large_strings_come_fewer_at_a_time(self):
        strings = [b"x" * (PART_BYTES // 2)] * 5
        counts, data = parts_of(Strings(strings))
        assert (counts, strings_in(data) == strings) == ([2, 2, 1], True)

    def test_a_string_that_is_larger_than_a_part_comes_alone(self):
        strings = [b"x" * (PART_BYTES + 1), b"y"]
        counts, data = parts_of(Strings(strings))
        assert (counts, strings_in(data) == strings) == ([1, 1], True)

    def test_the_rest_is_what_was_not_written(self):
        reply = Strings([b"a"] * PART_STRINGS + [b"b"])
        assert reply.put_part([])
        assert reply.rest() == [b"b"]
        assert not reply.put_part([])
        assert reply.rest() == []


def test_a_request_that_is_too_much_ends_a_connection_as_one_that_is_none():
    assert issubclass(wire.LimitError, wire.ProtocolError)
