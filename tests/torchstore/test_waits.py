"""Whom a key wakes up, and that nothing is left of who has gone."""

from __future__ import annotations

import pytest

from holdfast.torchstore.waits import Peer, Waits
from holdfast.torchstore.wire import STOP_WAITING, WAITS_MAX, ProtocolError


def test_a_wait_ends_when_the_last_of_its_keys_has_been_there():
    waits, peer = Waits(), Peer()
    waits.open(peer, [b"a", b"b"])
    waits.wake_all(b"a")
    waits.wake_all(b"a")
    assert (peer.out, waits.woken) == ([], [])
    waits.wake_all(b"b")
    assert (peer.out, waits.woken) == ([STOP_WAITING], [peer])
    assert len(waits) == 0
    assert not peer.waits


def test_a_key_that_is_named_twice_counts_once():
    waits, peer = Waits(), Peer()
    waits.open(peer, [b"a", b"a"])
    waits.wake_all(b"a")
    assert peer.out == [STOP_WAITING]


def test_all_who_wait_wake_up():
    waits, peers = Waits(), [Peer() for _ in range(5)]
    for peer in peers:
        waits.open(peer, [b"a"])
    waits.wake_all(b"a")
    assert waits.woken == peers


def test_one_wakes_up_and_it_is_who_waited_longest():
    waits, peers = Waits(), [Peer() for _ in range(3)]
    for peer in peers:
        waits.open(peer, [b"a"])
    for peer in peers:
        waits.wake_one(b"a")
        assert waits.woken.pop() is peer
    waits.wake_one(b"a")
    assert waits.woken == []
    assert len(waits) == 0


def test_one_who_waits_for_more_does_not_keep_the_next_from_waking_up():
    waits, first, second = Waits(), Peer(), Peer()
    waits.open(first, [b"a", b"b"])
    waits.open(second, [b"a"])
    waits.wake_one(b"a")
    assert waits.woken == [second]
    waits.wake_one(b"b")
    assert waits.woken == [second, first]


def test_who_is_forgotten_is_not_woken_and_leaves_nothing():
    waits, gone, there = Waits(), Peer(), Peer()
    waits.open(gone, [b"a", b"b"])
    waits.open(gone, [b"c"])
    waits.open(there, [b"a"])
    waits.forget(gone)
    assert len(waits) == 1
    waits.wake_all(b"a")
    assert waits.woken == [there]
    assert gone.out == []
    assert len(waits) == 0


def test_nobody_may_wait_without_bound():
    waits, peer = Waits(), Peer()
    for number in range(WAITS_MAX):
        waits.open(peer, [b"%d" % number])
    with pytest.raises(ProtocolError, match="waits"):
        waits.open(peer, [b"one more"])
