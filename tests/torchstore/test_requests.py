"""Requests from bytes, whole and in pieces, and bytes that are none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_peer import EVERY_REQUEST, GREETING, U64, check, get, multi_set, ping, set_, text

from holdfast.torchstore import requests as requests_module
from holdfast.torchstore.requests import Requests
from holdfast.torchstore.wire import KEY_MAX_BYTES, KEYS_MAX, MESSAGE_MAX_BYTES, OPERATION_COUNT, ProtocolError

FIELDS = {
    "set": (b"key", b"value"),
    "compare_set": (b"key", b"old", b"new"),
    "get": (b"key",),
    "add": (b"number", 5),
    "check": ([b"key", b"other"],),
    "wait": ([b"key", b"other"],),
    "num_keys": (),
    "delete": (b"key",),
    "append": (b"key", b"value"),
    "multi_get": ([b"key", b"other"],),
    "multi_set": ([b"key", b"value", b"other", b"value"],),
    "cancel_wait": (),
    "ping": (7,),
    "push": (b"queue", b"value"),
    "pop": (b"queue",),
    "queue_len": (b"queue",),
    "list_keys": (),
    "barrier": (b"barrier", 2),
}
ALL = GREETING + b"".join(EVERY_REQUEST.values())
ALL_READ = [(number, FIELDS[name]) for number, name in enumerate(EVERY_REQUEST, 1)]


def greeted():
    requests = Requests()
    requests.feed(GREETING)
    assert requests.take() is None
    assert requests.is_greeted
    return requests


def drain(requests):
    return list(iter(requests.take, None))


def read(*pieces):
    requests = Requests()
    found = []
    for piece in pieces:
        requests.feed(piece)
        found += drain(requests)
    return found


def test_there_is_one_request_for_each_operation():
    assert len(EVERY_REQUEST) == OPERATION_COUNT - 1


@pytest.mark.parametrize("name", EVERY_REQUEST)
def test_a_request_is_its_operation_and_its_fields(name):
    (request,) = read(GREETING, EVERY_REQUEST[name])
    assert request == (EVERY_REQUEST[name][0], FIELDS[name])


def test_requests_that_come_together_are_taken_one_by_one():
    assert read(ALL) == ALL_READ


def test_requests_that_come_byte_by_byte_are_the_same():
    assert read(*(ALL[at : at + 1] for at in range(len(ALL)))) == ALL_READ


@given(st.lists(st.integers(0, len(ALL)), max_size=8))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts):
    edges = [0, *sorted(cuts), len(ALL)]
    pieces = [ALL[start:end] for start, end in pairwise(edges)]
    assert read(*filter(None, pieces)) == ALL_READ


def test_it_says_how_much_is_missing_and_asks_for_no_less():
    requests = greeted()
    whole = set_(b"key", b"x" * 1000)
    requests.feed(whole[:100])
    assert requests.take() is None
    assert requests.missing_bytes == len(whole) - 100
    requests.feed(whole[100:-1])
    assert requests.take() is None
    assert requests.missing_bytes == 1
    requests.feed(whole[-1:] + ping(1))
    assert requests.missing_bytes == 0
    assert drain(requests) == [(1, (b"key", b"x" * 1000)), (13, (1,))]


def test_a_long_list_in_small_pieces_is_read_only_once(monkeypatch):
    """A key that was read is not read again with the next piece."""
    read_at = []
    real = requests_module._u64
    monkeypatch.setattr(requests_module, "_u64", lambda data, at: read_at.append(at) or real(data, at))
    keys = [b"key%d" % number for number in range(1000)]
    whole = check(*keys)
    requests = greeted()
    for at in range(0, len(whole), 7):
        requests.feed(whole[at : at + 7])
        drained = drain(requests)
    assert drained == [(5, (keys,))]
    assert len(read_at) <= 3 * len(keys)


# What is refused


@pytest.mark.parametrize("first", [b"\x00\x01\x02\x03\x04", b"\x01", b"G", b"\xff", EVERY_REQUEST["ping"]])
def test_who_does_not_greet_as_torch_does_is_refused(first):
    with pytest.raises(ProtocolError):
        read(first)


def test_who_greets_twice_is_refused():
    with pytest.raises(ProtocolError, match="twice"):
        read(GREETING, GREETING)


@pytest.mark.parametrize("operation", [19, 20, 255])
def test_an_operation_that_is_not_there_is_refused(operation):
    with pytest.raises(ProtocolError, match=f"unknown operation {operation}"):
        read(GREETING, bytes([operation]))


def test_a_request_before_one_that_is_refused_is_taken():
    requests = greeted()
    requests.feed(ping(1) + b"\xff")
    assert requests.take() == (13, (1,))
    with pytest.raises(ProtocolError):
        requests.take()


@pytest.mark.parametrize("length", [KEY_MAX_BYTES + 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("operation", [1, 2, 3, 4, 8, 9, 14, 15, 16, 18])
def test_a_key_that_is_too_long_is_refused_at_its_length(operation, length):
    with pytest.raises(ProtocolError, match="key"):
        read(GREETING, bytes([operation]) + U64.pack(length))


@pytest.mark.parametrize("operation", [5, 6, 10, 11])
def test_lists_are_bounded_in_their_number_and_their_keys(operation):
    with pytest.raises(ProtocolError, match="keys"):
        read(GREETING, bytes([operation]) + U64.pack(KEYS_MAX + 1))
    with pytest.raises(ProtocolError, match="key"):
        read(GREETING, bytes([operation]) + U64.pack(2) + U64.pack(KEY_MAX_BYTES + 1))


@pytest.mark.parametrize("length", [MESSAGE_MAX_BYTES, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("operation", [1, 2, 9, 14])
def test_a_value_that_is_too_long_is_refused_at_its_length(operation, length):
    with pytest.raises(ProtocolError, match="more than"):
        read(GREETING, bytes([operation]) + text(b"key") + U64.pack(length))


def test_values_that_are_too_long_together_are_refused(monkeypatch):
    monkeypatch.setattr(requests_module, "MESSAGE_MAX_BYTES", 1000)
    assert read(GREETING, multi_set(*[(b"key", b"x" * 100)] * 8))
    whole = multi_set(*[(b"key", b"x" * 100)] * 10)
    with pytest.raises(ProtocolError, match="more than 1000"):
        read(GREETING, *(whole[at : at + 50] for at in range(0, len(whole), 50)))


def test_a_list_does_not_count_against_the_next():
    requests = greeted()
    for _ in range(3):
        whole = check(b"a" * 100, b"b" * 100)
        requests.feed(whole[:150])
        assert requests.take() is None
        requests.feed(whole[150:])
        assert drain(requests) == [(5, ([b"a" * 100, b"b" * 100],))]
        assert requests._spent == 0


@given(st.binary(max_size=300), st.booleans())
def test_bytes_of_any_kind_are_requests_or_refused(noise, is_greeted):
    requests = greeted() if is_greeted else Requests()
    requests.feed(noise)
    try:
        for operation, _ in drain(requests):
            assert 0 < operation < OPERATION_COUNT
    except ProtocolError:
        pass


def test_what_was_taken_is_not_kept():
    requests = greeted()
    requests.feed(get(b"x" * 1000))
    assert len(drain(requests)) == 1
    assert requests._data == b""
