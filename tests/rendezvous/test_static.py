"""Nodes that were told who they are."""

from __future__ import annotations

import socket

import pytest

from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters, rendezvous_handler_registry
from holdfast.rendezvous.static import free_port, parse_endpoint


def create(backend="static", endpoint="", nodes=(1, 1), local_addr=None, **config):
    parameters = RendezvousParameters(backend, endpoint, "run", *nodes, local_addr, **config)
    return rendezvous_handler_registry.create_handler(parameters)


def test_a_single_node_needs_nothing():
    handler = create()
    info = handler.next_rendezvous()
    assert (info.rank, info.world_size) == (0, 1)
    assert info.bootstrap_store_info.master_addr == "127.0.0.1"
    with socket.socket() as server:
        server.bind(("127.0.0.1", info.bootstrap_store_info.master_port))
    assert handler.get_run_id() == "run"
    assert handler.num_nodes_waiting() == 0
    assert not handler.needs_polling
    assert not handler.is_closed()
    handler.set_closed()
    assert handler.is_closed()
    assert handler.shutdown()


@pytest.mark.parametrize("backend", ["static", "c10d", "etcd"])
def test_a_single_node_meets_nobody_whatever_the_backend(backend):
    handler = create(backend)
    assert handler.get_backend() == backend
    assert handler.next_rendezvous().world_size == 1


def test_each_round_has_a_fresh_store():
    handler = create()
    handler.next_rendezvous().store.set("key", "value")
    assert not handler.next_rendezvous().store.check(["key"])


def test_the_advertised_address():
    assert create(local_addr="127.0.0.2").next_rendezvous().bootstrap_store_info.master_addr == "127.0.0.2"


def test_several_nodes_are_where_they_were_told():
    info = create(endpoint="node0:1234", nodes=(3, 3), rank=2).next_rendezvous()
    assert (info.rank, info.world_size, info.store) == (2, 3, None)
    assert info.bootstrap_store_info.master_addr == "node0"
    assert info.bootstrap_store_info.master_port == 1234


def test_a_given_port_is_used_by_a_single_node_too():
    assert create(endpoint="127.0.0.1:1234").next_rendezvous().bootstrap_store_info.master_port == 1234


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": (1, 2), "rank": 0}, "--nnodes 1:2.*fixed number"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": 2}, "--node-rank 2: 2 nodes have the ranks 0 to 1"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": -1}, "--node-rank -1"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": "x"}, "rank=x: a whole number"),
        ({"nodes": (2, 2), "endpoint": "node:x:c", "rank": 0}, "--rdzv-endpoint 'node:x:c'"),
        ({"nodes": (2, 2), "endpoint": "a:x", "rank": 0}, "--rdzv-endpoint 'a:x'.*HOST:PORT"),
        ({"backend": "nonsense"}, "--rdzv-backend 'nonsense'.*c10d.*static"),
        ({"backend": "c10d", "nodes": (2, 2)}, "--rdzv-backend c10d: --rdzv-endpoint HOST:PORT is needed"),
        ({"backend": "etcd-v2"}, "etcd-v2: etcd has removed its v2 API; write --rdzv-backend etcd"),
        ({"nodes": (0, 1)}, "at least one"),
        ({"nodes": (2, 1)}, "fewer"),
        ({"backend": ""}, "name of a backend"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        create(**options)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("host", ("host", 7)),
        ("host:1", ("host", 1)),
        (" 10.0.0.1:65535 ", ("10.0.0.1", 65535)),
        ("[fd00::1]:29500", ("fd00::1", 29500)),
        ("[fd00::1]", ("fd00::1", 7)),
        ("fd00::1", ("fd00::1", 7)),
    ],
)
def test_endpoints(endpoint, expected):
    assert parse_endpoint(endpoint, 7) == expected


@pytest.mark.parametrize("endpoint", ["", ":1", "host:70000", "host:-1", "host:"])
def test_bad_endpoints(endpoint):
    with pytest.raises(InputError, match="HOST:PORT"):
        parse_endpoint(endpoint, 7)


def test_a_free_port_of_an_address_that_is_not_ours():
    assert 0 < free_port("192.0.2.1") < 1 << 16
