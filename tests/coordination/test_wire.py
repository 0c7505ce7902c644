"""Frames and messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordination.handshake import NONCE_BYTES, PROOF_BYTES, VERSION, Greeting, Proof
from holdfast.coordination.model import (
    STORE_ID_BYTES,
    Change,
    Changes,
    Created,
    Delete,
    DeletePrefix,
    Entry,
    Modified,
    Put,
    Transaction,
)
from holdfast.coordination.wire import (
    HEADER,
    Changed,
    Failed,
    Found,
    Frames,
    Get,
    ProtocolError,
    Reason,
    Transact,
    Unwatch,
    WatchFrom,
    decode_answer,
    decode_greeting,
    decode_proof,
    decode_request,
    encode,
    frame,
)


@pytest.mark.parametrize(
    "request_",
    [
        Get("key"),
        WatchFrom("prefix", 7),
        Unwatch(),
        Transact(
            Transaction((Created("a", 1), Modified("b", 2)), (Put("a", b"\0", 3), Delete("b")), (DeletePrefix("c"),))
        ),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_is_read_as_it_was_written(request_):
    assert decode_request(encode(request_)) == request_


@pytest.mark.parametrize(
    "answer",
    [
        Found(None),
        Found(Entry("key", b"value", 1, 2, 3)),
        Changed(Changes(4, (Change("a", Entry("a", b"", 4, 4)), Change("b")))),
        Failed(Reason.COMPACTED, "why"),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_is_read_as_it_was_written(answer):
    assert decode_answer(encode(answer)) == answer


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91",
        encode("get"),
        encode(["get"]),
        encode(["get", 1]),
        encode(["eval", "1"]),
        encode({"get": "key"}),
        encode(["transact", [[["c", "k", "one"]], [], []]]),
        b"\x91" * 100_000,
    ],
)
@pytest.mark.parametrize("decode", [decode_request, decode_answer, decode_proof, decode_greeting])
def test_what_cannot_be_read_is_the_peers_fault(decode, body):
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(body)


@pytest.mark.parametrize("decode", [decode_request, decode_answer, decode_proof, decode_greeting])
@pytest.mark.parametrize(
    "body", [b"\xa1\xff", b"\x92\xa3get\xa1\xff", b"\x93\xa6failed\xa5value\xa1\xff", b"\x91" * 100_000]
)
def test_text_that_is_not_utf_8_is_the_peers_fault_too(decode, body):
    with pytest.raises(ProtocolError, match="that cannot be read"):
        decode(body)


def test_nonces_and_proofs_have_one_length():
    nonce, mac = bytes(NONCE_BYTES), bytes(PROOF_BYTES)
    assert decode_greeting(encode(Greeting(1, nonce, b"store"))) == Greeting(1, nonce, b"store")
    assert decode_greeting(encode(["holdfast", 1, nonce])) == Greeting(1, nonce)  # as version 1 says it
    assert decode_proof(encode(Proof(1, nonce, mac))) == Proof(1, nonce, mac)
    for bad in (b"", nonce[1:], nonce + b"\0"):
        with pytest.raises(ProtocolError):
            decode_greeting(encode(Greeting(1, bad)))
        with pytest.raises(ProtocolError):
            decode_proof(encode(Proof(1, bad, mac)))
        with pytest.raises(ProtocolError):
            decode_proof(encode(Proof(1, nonce, bad)))


def test_a_greeting_of_a_later_version_can_be_read():
    later = encode(["holdfast", VERSION + 1, bytes(NONCE_BYTES), {"more": "to say"}])
    assert decode_greeting(later).version == VERSION + 1


@pytest.mark.parametrize("store", [None, 7, "text", b"", bytes(STORE_ID_BYTES - 1), bytes(STORE_ID_BYTES + 1)])
def test_a_greeting_names_the_store(store):
    nonce = bytes(NONCE_BYTES)
    assert Greeting(VERSION, nonce, bytes(STORE_ID_BYTES)).is_complete()
    assert not decode_greeting(encode(["holdfast", VERSION, nonce, store])).is_complete()


@given(
    st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.binary(max_size=100)), max_size=10),
    st.lists(st.integers(1, 50), min_size=1),
)
def test_frames_come_out_whole_however_they_are_cut(sent, cuts):
    data = b"".join(frame(channel, body) for channel, body in sent)
    frames = Frames(100)
    received = []
    turn = 0
    while data:
        cut = cuts[turn % len(cuts)]
        turn += 1
        frames.feed(data[:cut])
        data = data[cut:]
        while (taken := frames.take()) is not None:
            received.append((taken[0], bytes(taken[1])))
    assert received == sent


def test_frames_that_are_not_taken_at_once_are_kept():
    frames = Frames(100)
    frames.feed(frame(1, b"one") + frame(2, b"two")[:5])
    frames.feed(frame(2, b"two")[5:] + frame(3, b"three"))
    assert [frames.take() for _ in range(4)] == [(1, b"one"), (2, b"two"), (3, b"three"), None]


def test_a_frame_that_is_too_long_is_known_by_its_header():
    frames = Frames(100)
    frames.feed(HEADER.pack(101, 1))
    with pytest.raises(ProtocolError, match="101 bytes, more than 100"):
        frames.take()


def test_what_is_held_is_what_came_and_not_what_a_header_promises():
    frames = Frames(1 << 20)
    frames.feed(HEADER.pack(1 << 20, 1))
    assert frames.take() is None
    assert frames.held_bytes == 0
    for _ in range(15):
        frames.feed(bytes(1 << 16))
        assert frames.take() is None
    assert frames.held_bytes == 15 << 16
    frames.feed(bytes((1 << 16) + 3))
    assert frames.take() == (1, bytes(1 << 20))
    assert frames.take() is None
    assert frames.held_bytes == 3, "the beginning of the next header, and nothing of the frame that was taken"
