"""What a handler that was written for torch gets from the interface."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.rendezvous.handler import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RoundOver,
    StacksOccasion,
)


class Handler(RendezvousHandler):
    """As somebody writes one for torch: the abstract methods, and no more."""

    waiting = 0

    def get_backend(self):
        return "mine"

    def next_rendezvous(self):
        return RendezvousInfo(None, 0, 1, RendezvousStoreInfo("host", 1))

    def is_closed(self):
        return False

    def set_closed(self):
        pass

    def num_nodes_waiting(self):
        return self.waiting

    def get_run_id(self):
        return "run"

    def shutdown(self):
        return True


def test_the_abstract_methods_are_torchs():
    names = {"get_backend", "get_run_id", "is_closed", "next_rendezvous", "num_nodes_waiting", "set_closed", "shutdown"}
    assert RendezvousHandler.__abstractmethods__ == names
    with pytest.raises(TypeError):
        RendezvousHandler()


def test_such_a_handler_is_polled_and_lets_nodes_in_when_some_wait():
    handler = Handler()
    assert (handler.needs_polling, handler.counts_restarts, handler.use_agent_store) == (True, False, False)
    assert (handler.fileno(), handler.round_over()) == (None, None)
    handler.waiting = 1
    over = handler.round_over()
    assert (over.reason, over.may_finish) == ("nodes wait to be let in", True)


def test_what_such_a_handler_does_not_know_is_left_to_the_agent():
    handler = Handler()
    assert (handler.last_will(), handler.wait_for_end(1.0), handler.stacks_wanted()) == (None, None, None)
    assert handler.ask_for_stacks("1", "somebody asked", StacksOccasion.HANG)
    for call in (handler.leave, handler.stacks_gathered):
        assert call() is None
    for call in (handler.explain, handler.announce_leave, handler.on_lease):
        assert call("why") is None


def test_places_are_equal_by_their_address():
    place = RendezvousStoreInfo("host", 1)
    assert place == RendezvousStoreInfo("host", 1)
    assert hash(place) == hash(RendezvousStoreInfo("host", 1))
    assert place not in (RendezvousStoreInfo("host", 2), RendezvousStoreInfo("other", 1), ("host", 1))
    assert repr(place) == "RendezvousStoreInfo(master_addr='host', master_port=1)"


def test_a_round_of_another_backend_claims_nothing():
    info = Handler().next_rendezvous()
    assert (info.restart_count, info.generation, info.nodes, info.max_restarts) == (None, None, None, None)
    assert (info.job, info.lost, info.after) == ("", (), None)
    assert "rank=0, world_size=1" in repr(info)
    assert not RoundOver("over").may_finish


class Shared(dict):
    """A store as torch's: it takes and gives bytes."""

    def set(self, key, value):
        self[key] = value

    get = dict.__getitem__


def test_the_nodes_of_a_round_agree_on_a_place():
    store = Shared()
    chosen = RendezvousStoreInfo.build(0, store, "10.0.0.1", 1234)
    assert chosen == RendezvousStoreInfo.build(1, store, None) == RendezvousStoreInfo("10.0.0.1", 1234)
    assert store == {"MASTER_ADDR": b"10.0.0.1", "MASTER_PORT": b"1234"}


def test_rank_0_chooses_its_own_name_and_a_free_port(monkeypatch):
    monkeypatch.setattr("socket.getfqdn", lambda: "node0.cluster")
    place = RendezvousStoreInfo.build(0, Shared(), None)
    assert place.master_addr == "node0.cluster"
    assert 0 < place.master_port < 1 << 16


def test_a_place_passes_for_a_dataclass():
    assert dataclasses.asdict(RendezvousStoreInfo("host", 1)) == {"master_addr": "host", "master_port": 1}
