"""What is held for one client: pieces in order, and every byte counted once and discounted once."""

from __future__ import annotations

import pytest

from holdfast.coordination import held as limits
from holdfast.coordination.backlog import PIECE_BYTES, Backlog
from holdfast.coordination.held import MESSAGE_OVERHEAD_BYTES, Held
from holdfast.coordination.wire import frame


class Peer:
    """A client that is dropped with its backlog."""

    def __init__(self, held):
        self.backlog = Backlog(held)
        self.is_dropped = False

    def drop(self):
        self.is_dropped = True
        self.backlog.let_go(self)


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def peer(held):
    return Peer(held)


def test_messages_leave_in_pieces_and_in_their_order(held, peer):
    long, short = bytes(range(256)) * 512, b"short"
    assert len(long) == 2 * PIECE_BYTES
    peer.backlog.put(peer, 3, long)
    peer.backlog.put(peer, 4, short)
    assert peer.backlog.unsent_bytes == len(long) + len(short) + 2 * MESSAGE_OVERHEAD_BYTES == held.bytes
    pieces = []
    while peer.backlog.has_unsent:
        pieces.append(bytes(peer.backlog.next_piece()))
    assert b"".join(pieces) == frame(3, long) + frame(4, short)
    assert len(pieces) == 3
    assert (peer.backlog.unsent_bytes, held.bytes) == (0, 0)


def test_the_rest_of_a_message_counts_until_it_is_written(held, peer):
    body = bytes(PIECE_BYTES + 1)
    peer.backlog.put(peer, 1, body)
    peer.backlog.next_piece()
    assert peer.backlog.unsent_bytes == 1 + MESSAGE_OVERHEAD_BYTES
    peer.backlog.let_go(peer)
    assert (peer.backlog.has_unsent, peer.backlog.unsent_bytes, held.bytes) == (False, 0, 0)


def test_input_counts_until_it_is_processed(held, peer):
    peer.backlog.count_incoming(peer, 70)
    peer.backlog.count_incoming(peer, 30)
    assert held.bytes == 30
    peer.backlog.let_go(peer)
    assert held.bytes == 0


def test_the_client_that_is_idle_for_longest_is_dropped(held, peer, monkeypatch):
    monkeypatch.setattr(limits, "HELD_MAX_BYTES", 100)
    other = Peer(held)
    peer.backlog.count_incoming(peer, 60)
    other.backlog.count_incoming(other, 40)
    peer.backlog.moved(peer)
    peer.backlog.count_incoming(peer, 61)
    assert (peer.is_dropped, other.is_dropped, held.bytes) == (False, True, 61)


def test_a_client_without_a_backlog_is_not_dropped(held, peer, monkeypatch):
    peer.backlog.count_incoming(peer, 60)
    peer.backlog.count_incoming(peer, 0)
    held.bytes, limit = 1, 0
    monkeypatch.setattr(limits, "HELD_MAX_BYTES", limit)
    assert held.surplus() is None
