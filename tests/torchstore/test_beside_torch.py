"""The same requests to torch's own server and to ours, and torch's own client at both."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_peer import (
    U64,
    StorePeer,
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
    pop,
    push,
    queue_len,
    set_,
    wait,
)
from store_torch import TorchProgram

from holdfast.torchstore import TorchStoreServer

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def ports():
    """Of torch's server and of ours, which are asked the same from their beginning on."""
    with TorchProgram("server") as torchs, TorchStoreServer("127.0.0.1") as ours:
        ours.start()
        yield torchs.answer(), ours.port


def both(ports, story):
    theirs, ours = (story(port) for port in ports)
    assert ours == theirs
    return ours


def numbers(*values):
    return {
        f"add to {value!r}": (set_(b"n%r" % value, value), add(b"n%r" % value, 1), get(b"n%r" % value))
        for value in values
    }


CASES = {
    "missing": (get(b"no"), multi_get(b"no", b"no"), delete(b"no"), pop(b"no"), queue_len(b"no"), check(b"no")),
    "empty key": (set_(b"", b"x"), get(b""), delete(b"")),
    "empty value": (set_(b"e", b""), get(b"e"), check(b"e"), delete(b"e")),
    "nothing to do": (check(), wait(), multi_get(), multi_set(), cancel_wait()),
    "key of 8 KiB": (set_(b"k" * 8192, b"v"), get(b"k" * 8192)),
    "value of 8 MiB": (set_(b"8 MiB", b"v" * (8 << 20)), get(b"8 MiB"), delete(b"8 MiB")),
    "value that grew": (*(append(b"grown", b"v" * (5 << 20)),) * 2, get(b"grown"), delete(b"grown")),
    **numbers(b"12abc", b" \t\n\v\f\r12", b"+5", b"-3", b"0x10", b"1.5", b"1_0", b"00012", b"1\x00"),
    **numbers(b"9223372036854775807", b"-9223372036854775808", b"", b"abc", b"--1", b"- 1", b"9223372036854775808"),
    "64 bits": (add(b"64", -(1 << 63)), add(b"64", -1), get(b"64")),
    "wait for append": (wait(b"w1"), append(b"w1", b"x")),
    "wait for add": (wait(b"w2"), add(b"w2", 1)),
    "wait for compare_set": (wait(b"w3"), compare_set(b"w3", b"", b"x")),
    "wait for multi_set": (wait(b"w4", b"w5"), multi_set((b"w4", b""), (b"w5", b""))),
    "wait for push": (wait(b"w6"), push(b"w6", b"x"), queue_len(b"w6")),
    "wait for what goes": (wait(b"w7", b"w8"), set_(b"w7", b""), delete(b"w7"), set_(b"w8", b"")),
    "wait twice": (wait(b"w9", b"w9"), set_(b"w9", b"")),
    "wait and cancel": (wait(b"w10"), cancel_wait(), set_(b"w10", b"")),
    "barrier of a value": (set_(b"b1", b"1"), barrier(b"b1", 2), get(b"b1")),
    "barrier of text": (set_(b"b2", b"x"), barrier(b"b2", 2)),
    "barrier and set": (barrier(b"b3", 3), set_(b"b3", b"0"), barrier(b"b3", 1)),
    "barrier and cancel": (barrier(b"b4", 2), cancel_wait(), barrier(b"b4", 2), get(b"b4")),
    "barrier of none": (barrier(b"b5", 0), barrier(b"b5", -1), get(b"b5")),
    "queue and value": (push(b"q1", b"q"), set_(b"q1", b"v"), get(b"q1"), delete(b"q1"), check(b"q1"), pop(b"q1")),
    "queue": (push(b"q2", b"a"), push(b"q2", b""), queue_len(b"q2"), *(pop(b"q2"),) * 3),
    "no operation": (b"\x13",),
    "two greetings": (b"\x00\xce\xf7\x85\x3c",),
    "a key that never ends": (b"\x03" + b"\xff" * 8,),
    "a value that never ends": (b"\x01" + b"\x00" * 8 + b"\xff" * 8,),
    "keys that never end": (b"\x05" + b"\xff" * 8,),
    "number of keys": (num_keys(),),
}


@pytest.mark.parametrize("name", CASES)
def test_odd_requests_have_the_same_replies(ports, name):
    def story(port):
        with StorePeer(port) as peer:
            try:
                return peer.ask(*CASES[name])
            except ConnectionError:
                return "ended"

    both(ports, story)


def test_both_list_the_same_keys(ports):
    def story(port):
        with StorePeer(port) as peer:
            peer.ask(set_(b"listed", b""))
            said = peer.ask(list_keys())
        (count,) = U64.unpack_from(said)
        keys, at = [], 8
        for _ in range(count):
            end = at + 8 + U64.unpack_from(said, at)[0]
            keys.append(said[at + 8 : end])
            at = end
        assert at == len(said)
        assert b"listed" in keys
        return sorted(keys)

    both(ports, story)


names = st.sampled_from([b"a", b"b", b"c"])
values = st.sampled_from([b"", b"x", b"y", b"z" * 70_000])
amounts = st.sampled_from([1, -1, 1 << 62, -(1 << 63)])
PEERS = 3


def keyed(prefix):
    return names.map(lambda name: prefix + name)


# Kinds of keys are kept apart where torch's server confuses them (see holdfast.torchstore.keyspace).
plain, counted, compared, queued, met = map(keyed, (b"p", b"n", b"c", b"q", b"b"))
operations = st.one_of(
    st.builds(set_, plain, values),
    st.builds(append, plain, values),
    st.builds(lambda a, b, v, w: multi_set((a, v), (b, w)), plain, plain, values, values),
    st.builds(get, st.one_of(plain, counted, compared, queued, met)),
    st.builds(multi_get, plain, counted, queued),
    st.builds(check, plain, st.one_of(plain, counted, queued)),
    st.builds(delete, st.one_of(plain, counted, compared)),
    st.builds(add, counted, amounts),
    st.builds(compare_set, compared, values, values),
    st.builds(wait, plain, st.one_of(plain, counted)),
    st.builds(barrier, met, st.integers(1, 3)),
    st.just(cancel_wait()),
    st.builds(push, queued, values),
    st.builds(pop, queued),
    st.builds(queue_len, queued),
    st.just(num_keys()),
)
WAITS, CANCEL = (6, 18), 12


@given(st.lists(st.tuples(st.integers(0, PEERS - 1), operations), max_size=25))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_requests_has_the_same_replies(ports, script):
    def story(port):
        said = []
        with ExitStack() as stack:
            peers = [stack.enter_context(StorePeer(port)) for _ in range(PEERS)]
            waiting = set()
            for number, request in script:
                if number in waiting:
                    if request[0] in WAITS:
                        continue  # as torch's client, which has one wait at a time
                    if request[0] == CANCEL:
                        waiting.discard(number)
                replies = [peers[number].ask(request)]
                if request[0] in WAITS and not replies[0]:
                    waiting.add(number)
                for other in range(PEERS):
                    if other != number and (woken := peers[other].ask()):
                        replies.append((other, woken))
                        waiting.discard(other)
                said.append(replies)
            for peer in peers:
                peer.ask(cancel_wait())
            cleaning = [delete(kind + name) for kind in (b"p", b"n", b"c", b"b") for name in (b"a", b"b", b"c")]
            peers[0].ask(*cleaning, *(pop(b"q" + name) for name in (b"a", b"b", b"c") for _ in range(25)))
        return said

    both(ports, story)


def test_torchs_client_sees_no_difference():
    with TorchProgram("server") as torchs, TorchStoreServer("127.0.0.1") as ours:
        ours.start()
        with (
            TorchProgram("client", str(torchs.answer())) as at_theirs,
            TorchProgram("client", str(ours.port)) as at_ours,
        ):
            said = at_ours.answer()
            assert said == at_theirs.answer()
    assert said["get"] == "value"
    assert said["large"] == [None, 8 << 20]
    assert said["wait in vain"] == "DistStoreError"
    assert said["after it"] == "value"


def test_a_value_of_100_mb():
    value = os.urandom(1 << 20) * 100
    with TorchStoreServer("127.0.0.1") as server:
        server.start()
        with StorePeer(server.port) as one, StorePeer(server.port) as two:
            one.send(set_(b"large", value))
            assert one.ask(check(b"large")) == b"\0"
            two.send(get(b"large"))
            assert two.read(8 + len(value))[8:] == value


def test_three_ranks_form_a_process_group():
    with TorchStoreServer("127.0.0.1") as server, ExitStack() as stack:
        server.start()
        ranks = [
            stack.enter_context(
                TorchProgram(
                    "rank",
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(server.port),
                    RANK=str(rank),
                    WORLD_SIZE="3",
                    TORCHELASTIC_USE_AGENT_STORE="True",
                    GLOO_SOCKET_IFNAME="lo",
                )
            )
            for rank in range(3)
        ]
        assert [rank.answer() for rank in ranks] == [6.0, 6.0, 6.0]
