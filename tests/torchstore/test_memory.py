"""What the store holds for its clients is counted to the byte, and ends somewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_peer import (
    add,
    append,
    barrier,
    cancel_wait,
    compare_set,
    delete,
    multi_set,
    pop,
    push,
    set_,
    wait,
)

from holdfast.torchstore import memory as memory_module
from holdfast.torchstore.keyspace import QUEUE_COST_BYTES, KeySpace
from holdfast.torchstore.memory import KEY_COST_BYTES, STRING_COST_BYTES, Memory
from holdfast.torchstore.requests import _READERS
from holdfast.torchstore.waits import Peer
from holdfast.torchstore.wire import LimitError

names = st.sampled_from([b"a", b"bb", b"ccc"])
values = st.sampled_from([b"", b"1", b"22", b"x" * 1000])
requests = st.one_of(
    st.builds(set_, names, values),
    st.builds(append, names, values),
    st.builds(add, st.just(b"number"), st.integers(0, 10**9)),
    st.builds(compare_set, names, values, values),
    st.builds(lambda a, b, v: multi_set((a, v), (b, v)), names, names, values),
    st.builds(delete, names),
    st.builds(push, names, values),
    st.builds(pop, names),
    st.builds(wait, names, st.just(b"never")),
    st.builds(barrier, st.just(b"met"), st.integers(1, 3)),
    st.just(cancel_wait()),
)


def carry_out(space, peer, request):
    fields, _ = _READERS[request[0]](request, 1)
    space.operations[request[0]](peer, *fields)


def held(space, peers):
    """Counted anew."""
    keys = sum(len(key) + len(value) + KEY_COST_BYTES for key, value in space._values.items())
    queues = sum(
        len(key) + QUEUE_COST_BYTES + sum(len(value) + STRING_COST_BYTES for value in queue)
        for key, queue in space._queues.items()
    )
    return keys + queues + sum(wait.size for peer in peers for wait in peer.waits)


@given(st.lists(st.tuples(st.integers(0, 1), requests), max_size=40))
def test_the_count_is_what_is_there(script):
    space, peers = KeySpace(), [Peer(), Peer()]
    for number, request in script:
        carry_out(space, peers[number], request)
        assert space.memory.held_bytes == held(space, peers)
    for peer in peers:
        space.leave(peer)
        assert not peer.waited_keys or peer.waits == set()
    assert space.memory.held_bytes == held(space, [])


@pytest.mark.parametrize(
    "request_",
    [
        set_(b"key", b"x" * 500),
        append(b"there", b"x" * 500),
        compare_set(b"key", b"", b"x" * 500),
        multi_set((b"one", b"x"), (b"two", b"x" * 500)),
        push(b"queue", b"x" * 500),
        wait(b"x" * 500),
        barrier(b"x" * 500, 2),
        add(b"x" * 500, 1),
    ],
    ids=["set", "append", "compare_set", "multi_set", "push", "wait", "barrier", "add"],
)
def test_what_is_too_much_is_refused_and_changes_nothing(monkeypatch, request_):
    space, peer = KeySpace(), Peer()
    carry_out(space, peer, set_(b"there", b"1"))
    before = space.memory.held_bytes
    monkeypatch.setattr(memory_module, "HELD_MAX_BYTES", before + 400)
    with pytest.raises(LimitError, match="the store would hold more than 0 MiB for its clients"):
        carry_out(space, peer, request_)
    space.leave(peer)
    assert space.memory.held_bytes == before
    assert (space._values, space._queues) == ({b"there": b"1"}, {})


def test_a_value_can_be_replaced_by_a_smaller_one_when_the_store_is_full(monkeypatch):
    space, peer = KeySpace(), Peer()
    carry_out(space, peer, set_(b"key", b"x" * 1000))
    monkeypatch.setattr(memory_module, "HELD_MAX_BYTES", 10)
    carry_out(space, peer, set_(b"key", b"x" * 900))
    carry_out(space, peer, delete(b"key"))
    assert space.memory.held_bytes == 0


def test_what_many_are_to_be_sent_counts_once_until_all_have_it():
    memory, one, two = Memory(), [], []
    value = b"x" * 1000
    memory.pin([value, value], one)
    memory.pin([value], two)
    assert memory.held_bytes == 1000 + 3 * STRING_COST_BYTES
    memory.unpin(one)
    assert memory.held_bytes == 1000 + STRING_COST_BYTES
    memory.unpin(two)
    assert (memory.held_bytes, one, two) == (0, [], [])


def test_what_is_too_much_to_be_sent_is_not_counted(monkeypatch):
    monkeypatch.setattr(memory_module, "HELD_MAX_BYTES", 1000)
    memory, pinned = Memory(), []
    with pytest.raises(LimitError):
        memory.pin([b"x" * 500, b"y" * 500], pinned)
    assert (memory.held_bytes, pinned) == (0, [])
