"""Ranks through a store that has no more than torch's: other nodes may write anything there."""

from __future__ import annotations

import pytest

from holdfast.agent.torch_store_protocol import exchange_ranks
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.store import LocalStore


def test_a_node_alone_has_all_ranks():
    workers = exchange_ranks(LocalStore(), 0, 1, "trainer", 2)
    assert [(worker.global_rank, worker.world_size, worker.role_rank) for worker in workers] == [(0, 2, 0), (1, 2, 1)]


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b"{}", b'{"role": 1, "local_world_size": 1}', b'{"role": "r", "local_world_size": -1}'],
)
def test_what_another_node_wrote_is_one_kind_of_error(value):
    store = LocalStore()
    store.set("torchelastic/role_info/1", value)
    with pytest.raises(RendezvousStateError, match="torchelastic/role_info/1 in the store is not what a node writes"):
        exchange_ranks(store, 0, 2, "trainer", 2)


@pytest.mark.parametrize("value", [b"", b"[1, 2, 3]", b'["a", 1, 2, 3]', b"[-1, 1, 2, 3]", b"[" * 100_000])
def test_ranks_that_are_none_are_one_kind_of_error(value):
    store = LocalStore()
    store.set("torchelastic/assigned_ranks/1", value)
    with pytest.raises(RendezvousStateError, match="assigned_ranks/1"):
        exchange_ranks(store, 1, 2, "trainer", 2)
