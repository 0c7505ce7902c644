"""One client: requests however they come, replies however slowly they go, and an end at any place."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

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
    append,
    barrier,
    cancel_wait,
    check,
    delete,
    get,
    list_keys,
    multi_get,
    multi_set,
    ping,
    push,
    queue_len,
    set_,
    text,
    wait,
)

from holdfast.torchstore import TorchStoreServer
from holdfast.torchstore import connection as connection_module
from holdfast.torchstore import memory as memory_module
from holdfast.torchstore.connection import Connection
from holdfast.torchstore.keyspace import KeySpace
from holdfast.torchstore.wire import KEYS_MAX, VALUE_MAX_BYTES


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


# Limits


SERVER = """
import sys
from holdfast.torchstore import TorchStoreServer
with TorchStoreServer("127.0.0.1") as server:
    server.start()
    print(server.port, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other_process():
    """A server of its own, whose memory is its own, too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVER], env=environment, text=True, **pipes) as process:
        process.port = int(process.stdout.readline())
        yield process
        process.kill()


def most_memory_mib(pid):
    with open(f"/proc/{pid}/status") as file:
        (most,) = [int(line.split()[1]) for line in file if line.startswith("VmHWM:")]
    return most >> 10


def test_a_short_request_for_much_costs_little_memory(other_process):
    """270 kB that ask for 490 MB, and whoever asks does not read."""
    with StorePeer(other_process.port) as peer, StorePeer(other_process.port) as greedy:
        peer.ask(set_(b"k", b"x" * (16 << 10)))
        before = most_memory_mib(other_process.pid)
        greedy.send(multi_get(*(b"k",) * 30_000))
        greedy.read(8)
        assert peer.ask(ping(1)) == U32.pack(1)
        assert most_memory_mib(other_process.pid) - before < 64


def test_a_long_list_of_keys_costs_little_memory_and_is_whole(other_process):
    keys = [b"%08d" % number + b"k" * 8000 for number in range(5000)]
    with StorePeer(other_process.port) as peer, StorePeer(other_process.port) as greedy:
        for key in keys:
            peer.send(set_(key, b""))
        peer.ask()
        before = most_memory_mib(other_process.pid)
        greedy.send(list_keys(), ping(5))
        said = greedy.read(8 + len(keys) * (8 + 8008) + 4)
        assert said == U64.pack(len(keys)) + b"".join(map(text, keys)) + U32.pack(5)
        assert most_memory_mib(other_process.pid) - before < 16


def test_the_end_of_a_wait_comes_behind_a_long_reply(port, peer):
    value = b"x" * 100_000
    peer.ask(set_(b"part", value))
    with StorePeer(port) as slow:
        slow.send(wait(b"a"), wait(b"b"), multi_get(*(b"part",) * 500), ping(3))
        assert slow.read(8) == U64.pack(len(value))
        peer.ask(set_(b"a", b""), set_(b"b", b""))
        assert slow.read(500 * (8 + len(value)) - 8) == (value + U64.pack(len(value))) * 499 + value
        assert slow.read(6) == b"\0\0" + U32.pack(3)


def test_a_long_reply_is_of_the_moment_of_its_request(port, peer):
    value = b"x" * 100_000
    peer.ask(multi_set(*((b"old%d" % number, value) for number in range(300))))
    with StorePeer(port) as slow:
        slow.send(multi_get(*(b"old%d" % number for number in range(300))))
        assert slow.read(8) == U64.pack(len(value))
        peer.ask(*(set_(b"old%d" % number, b"new") for number in range(300)))
        assert slow.read(300 * (8 + len(value)) - 8) == (value + U64.pack(len(value))) * 299 + value
        peer.ask(*(set_(b"old%d" % number, b"") for number in range(300)))


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "holdfast.torchstore"]


@pytest.fixture
def full(monkeypatch):
    """A server that holds no more than 8 MiB."""
    monkeypatch.setattr(memory_module, "HELD_MAX_BYTES", 8 << 20)
    with TorchStoreServer("127.0.0.1") as server:
        server.start()
        yield server


def test_who_writes_more_than_the_store_holds_is_dropped_and_told_of(full, caplog):
    with StorePeer(full.port) as peer, StorePeer(full.port) as greedy:
        peer.ask(set_(b"k", b"v"))
        with suppress(OSError):
            for number in range(20):
                greedy.send(set_(b"%d" % number, b"x" * (1 << 20)))
        assert greedy.is_ended()
        assert peer.ask(get(b"k")) == text(b"v")
    (line,) = told(caplog)
    assert line.startswith("the workers' store drops a client at 127.0.0.1:")
    assert line.endswith("the store would hold more than 8 MiB for its clients")


def test_requests_that_never_end_are_not_kept_without_a_limit(full, caplog):
    with ExitStack() as stack, StorePeer(full.port) as worker:
        slow = [stack.enter_context(StorePeer(full.port)) for _ in range(20)]
        for peer in slow:
            with suppress(OSError):
                peer.send(set_(b"k", b"x" * (1 << 20))[:-1])
        while len(full._loop._connections) > 8 + 1:  # no more than so many can have a MiB each
            assert worker.ask(ping(1)) == U32.pack(1)
        assert full._loop._keyspace.memory.held_bytes <= 8 << 20
        assert sum(bool(select.select([peer._socket], [], [], 0)[0]) for peer in slow) >= 12
        assert len(told(caplog)) == 1


def test_values_that_were_replaced_are_not_kept_without_a_limit_for_who_does_not_read(full, caplog):
    """Each of these keeps what it asked for, and does not take it."""
    with ExitStack() as stack, StorePeer(full.port) as writer:
        slow = [stack.enter_context(StorePeer(full.port)) for _ in range(20)]
        for number, peer in enumerate(slow):
            writer.ask(set_(b"k", bytes([number]) * (1 << 20)))
            peer.send(multi_get(*(b"k",) * 65))
            peer._socket.recv(1)
        assert full._loop._keyspace.memory.held_bytes <= 8 << 20
        assert len(full._loop._connections) < 12
        assert writer.ask(ping(1)) == U32.pack(1)
    assert len(told(caplog)) == 1


def test_one_value_for_all_is_kept_once(full):
    with ExitStack() as stack, StorePeer(full.port) as writer:
        writer.ask(set_(b"k", b"x" * (3 << 20)))
        slow = [stack.enter_context(StorePeer(full.port)) for _ in range(50)]
        for peer in slow:
            peer.send(*(get(b"k"),) * 3)
        for peer in slow:
            assert peer.read(3 * (8 + (3 << 20))) == text(b"x" * (3 << 20)) * 3


def test_nothing_is_counted_for_those_who_have_gone(full):
    memory = full._loop._keyspace.memory
    with StorePeer(full.port) as peer:
        peer.ask(wait(b"never"), set_(b"k", b"x" * (1 << 20)))
        with StorePeer(full.port) as slow:
            slow.send(*(get(b"k"),) * 20, set_(b"k", b"x" * 100_000)[:-1])
            slow.read(8)
            peer.ask()
    with StorePeer(full.port) as last:
        while len(full._loop._connections) > 1:
            last.ask()
        assert last.ask(delete(b"k")) == I64.pack(1)
        assert memory.held_bytes == 0


def test_a_value_grows_to_a_limit(port, peer, caplog):
    part = b"x" * (VALUE_MAX_BYTES // 4)
    for _ in range(4):
        peer.send(append(b"grows", part))
    peer.ask()
    with StorePeer(port) as greedy:
        greedy.send(append(b"grows", b"x"))
        assert greedy.is_ended()
    assert peer.ask(delete(b"grows")) == I64.pack(1)
    assert told(caplog)[0].endswith(f"the value of b'grows' would grow to more than {VALUE_MAX_BYTES} bytes")


def test_a_client_waits_for_no_more_keys_than_one_request_names(port, peer):
    with StorePeer(port) as greedy:
        many = [b"%d" % number for number in range(KEYS_MAX)]
        assert greedy.ask(wait(*many)) == b""
        greedy.send(wait(b"one more"))
        assert greedy.is_ended()
    assert peer.ask(ping(1)) == U32.pack(1)


# Turns


@pytest.fixture
def pair():
    """A connection without a loop, and its client."""
    epoll = select.epoll()
    server, client = socket.socketpair()
    server.setblocking(False)
    connection = Connection(server, ("127.0.0.1", 1), 0.0, KeySpace(), epoll)
    with server, client:
        yield connection, client
    connection.close()
    epoll.close()


def test_a_client_that_has_sent_much_lets_others_have_their_turn(pair, monkeypatch):
    monkeypatch.setattr(connection_module, "TURN_MAX_S", 0.0)
    connection, client = pair
    client.sendall(GREETING + add(b"n", 1) * 5)
    assert connection.serve()
    replies = []
    while connection.is_busy:
        replies.append(I64.unpack(client.recv(100))[0])
        assert connection.serve(), "nothing is read meanwhile"
        connection.go_on()
    replies.append(I64.unpack(client.recv(100))[0])
    assert replies == [1, 2, 3, 4, 5]


def test_who_takes_no_replies_has_no_turn_of_its_own(pair, monkeypatch):
    """It would be asked for ever."""
    monkeypatch.setattr(connection_module, "TURN_MAX_S", 0.0)
    connection, client = pair
    client.sendall(GREETING + set_(b"k", b"x" * 10_000_000)[:-10_000_000])
    connection.serve()
    sent = threading.Thread(target=client.sendall, args=(b"x" * 10_000_000 + get(b"k") * 3,))
    sent.start()
    while sent.is_alive() or connection._requests.held_bytes or connection.is_busy:
        connection.serve()
        connection.go_on()
        if connection._is_blocked:
            break
    sent.join()
    assert not connection.is_busy


def test_all_turns_together_carry_out_all(monkeypatch):
    monkeypatch.setattr(connection_module, "TURN_MAX_S", 0.0)
    with TorchStoreServer("127.0.0.1") as server, ExitStack() as stack:
        server.start()
        peers = [stack.enter_context(StorePeer(server.port)) for _ in range(5)]
        for peer in peers:
            peer.send(*(add(b"n", 1),) * 300)
        for peer in peers:
            assert len(peer.read(8 * 300)) == 8 * 300
        assert peers[0].ask(add(b"n", 0)) == I64.pack(1500)
