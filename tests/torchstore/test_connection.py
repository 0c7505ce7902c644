"""One client: requests however they come, replies however slowly they go, and an end at any place."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_peer import (
    EVERY_REQUEST,
    GREETING,
    I64,
    U32,
    U64,
    StorePeer,
    add,
    barrier,
    cancel_wait,
    check,
    get,
    multi_get,
    ping,
    push,
    queue_len,
    set_,
    text,
    wait,
)

from holdfast.torchstore import TorchStoreServer
from holdfast.torchstore import connection as connection_module


@pytest.fixture(scope="module")
def port():
    with TorchStoreServer("127.0.0.1") as server:
        server.start()
        yield server.port


@pytest.fixture
def peer(port):
    with StorePeer(port) as peer:
        yield peer


def test_requests_that_come_together_are_answered_in_their_order(peer):
    peer.send(*(add(b"ordered", 1) for _ in range(5000)))
    assert peer.read(8 * 5000) == b"".join(I64.pack(number) for number in range(1, 5001))


def test_a_request_that_comes_byte_by_byte_is_answered(port):
    with StorePeer(port, greets=False) as peer:
        for byte in GREETING + set_(b"slow", b"value") + get(b"slow"):
            peer.send(bytes([byte]))
        assert peer.read(13) == text(b"value")


def test_the_end_of_a_wait_comes_to_who_sends_nothing(port, peer):
    peer.ask(wait(b"awaited"))
    with StorePeer(port) as other:
        other.send(set_(b"awaited", b""))
        assert peer.read(1) == b"\0"


def test_who_has_no_more_to_say_is_answered_to_the_end(port):
    with StorePeer(port) as peer:
        peer.send(set_(b"last", b"words"), get(b"last"))
        peer.half_close()
        assert peer.read(100) == text(b"words")


def test_who_asks_for_more_than_it_reads_gets_it_when_it_does_and_holds_nobody_up(port, peer):
    """Many large replies, of which the kernel takes a few."""
    value = bytes(range(256)) * 4096
    peer.ask(set_(b"large", value))
    with StorePeer(port) as slow:
        count = 300
        slow.send(*(get(b"large") + ping(number) for number in range(count)))
        for number in range(100):
            assert peer.ask(ping(number)) == U32.pack(number)
        for number in range(count):
            assert slow.read(8 + len(value) + 4) == text(value) + U32.pack(number)


def test_who_reads_fast_holds_nobody_up_however_much_it_asks_for(port, peer):
    """10 GB in one reply, of a value that is there once; nobody reads it to the end."""
    peer.ask(set_(b"much", b"x" * (1 << 20)))
    with StorePeer(port) as greedy:
        greedy.send(multi_get(*(b"much",) * 10_000))

        def read():
            with suppress(OSError):
                while greedy.read(1 << 20):
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(20):
            assert peer.ask(ping(number)) == U32.pack(number)
        is_reading = reader.is_alive()
        greedy.end()
        reader.join()
        assert is_reading


@pytest.mark.parametrize("at_once", [connection_module.SEND_MAX_BYTES, 1])
def test_replies_of_many_pieces_arrive_whole(peer, monkeypatch, at_once):
    """Beyond what the kernel takes at once, in number and in size."""
    monkeypatch.setattr(connection_module, "SEND_MAX_BYTES", at_once)
    keys = [b"piece%d" % number for number in range(3000)]
    for number, key in enumerate(keys):
        peer.send(set_(key, b"%d" % number * (number % 7) if number % 100 else b"x" * 200_000))
    expected = b"".join(
        text(b"%d" % number * (number % 7) if number % 100 else b"x" * 200_000) for number in range(len(keys))
    )
    peer.send(multi_get(*keys), ping(5))
    assert peer.read(len(expected) + 4) == expected + U32.pack(5)


def test_the_end_of_a_wait_takes_its_place_among_replies_that_wait(port, peer):
    """What another puts in splits no reply, and requests that were held are answered after it."""
    reply = text(b"x" * ((1 << 20) + 1))
    peer.ask(set_(b"huge", reply[8:]))
    count = 200
    with StorePeer(port) as slow:
        slow.send(wait(b"later"), *(get(b"huge") + ping(number * 256 + 1) for number in range(count)))
        assert slow.read(8) == reply[:8]
        peer.ask(set_(b"later", b""))
        ends = 0
        for number in range(count):
            for expected in (reply if number else reply[8:], U32.pack(number * 256 + 1)):
                said = slow.read(1)
                if said == b"\0":
                    ends += 1
                    said = slow.read(1)
                assert said + slow.read(len(expected) - 1) == expected
        assert ends == 1


# Ends


@pytest.mark.parametrize("name", EVERY_REQUEST)
def test_a_client_may_go_in_the_middle_of_any_request(port, peer, name):
    request = EVERY_REQUEST[name]
    for size in range(len(request) + 1):
        with StorePeer(port) as other:
            other.send(request[:size])
    assert peer.ask(ping(1)) == U32.pack(1)


def test_nothing_is_left_of_a_client_that_waited(port, peer):
    for _ in range(20):
        with StorePeer(port) as other:
            other.ask(wait(b"never", b"ever"), barrier(b"gone", 1000), wait(b"q"))
    peer.ask(set_(b"never", b""), set_(b"ever", b""))
    assert peer.ask(wait(b"q")) == b""
    with StorePeer(port) as other:
        other.ask(push(b"q", b"for the one who is there"))
    assert peer.read(1) == b"\0"
    assert peer.ask(queue_len(b"q"), cancel_wait()) == I64.pack(1) + b"\1"


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00\x00",
        GREETING + GREETING,
        GREETING + b"\xff",
        GREETING + b"\x03" + b"\xff" * 8,
        GREETING + b"\x01" + text(b"k") + U64.pack(1 << 40),
        GREETING + b"\x05" + U64.pack(1 << 40),
        GREETING + set_(b"no number", b"x") + add(b"no number", 1),
        GREETING + b"".join(wait(b"never%d" % number) for number in range(2000)),
    ],
    ids=range(9),
)
def test_who_cannot_be_understood_is_sent_away_alone(port, peer, noise):
    with StorePeer(port, greets=False) as other:
        other.send(noise)
        assert other.is_ended()
    assert peer.ask(ping(1)) == U32.pack(1)


def test_what_was_asked_before_the_noise_is_answered(port):
    with StorePeer(port) as other:
        other.send(ping(3), b"\xff")
        assert other.read(100) == U32.pack(3)


requests = st.sampled_from(list(EVERY_REQUEST.values()))
noise = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda request, size: request[:size], requests, st.integers(0, 40)),
    st.builds(lambda op, size: bytes([op]) + U64.pack(size), st.integers(0, 18), st.integers(0, (1 << 64) - 1)),
    requests,
)


@given(st.lists(noise, max_size=8), st.booleans())
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_of_any_kind_disturbs_nobody_else(port, peer, pieces, greets):
    with StorePeer(port, greets=greets) as other:
        try:
            for piece in pieces:
                other.send(piece)
        except ConnectionError:
            pass  # sent away
    assert peer.ask(set_(b"honest", b"v"), get(b"honest"), check(b"honest")) == text(b"v") + b"\0"
