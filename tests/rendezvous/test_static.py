"""A single node, which meets nobody, and what nodes with given ranks have to be told."""

from __future__ import annotations

import socket

import pytest

from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters, rendezvous_handler_registry
from holdfast.rendezvous.elastic import ElasticRendezvous
from holdfast.rendezvous.hosting import free_port
from holdfast.rendezvous.static import StaticRendezvous, parse_endpoint, parse_rendezvous_endpoint


def make(backend="static", endpoint="", nodes=(1, 1), local_addr=None, **config):
    parameters = RendezvousParameters(backend, endpoint, "run", *nodes, local_addr, **config)
    return rendezvous_handler_registry.create_handler(parameters)


@pytest.fixture
def create():
    """Makes handlers that are shut down after the test."""
    made = []

    def create_one(*args, **options):
        made.append(make(*args, **options))
        return made[-1]

    yield create_one
    for handler in made:
        assert handler.shutdown()


def can_listen(address, port):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        try:
            server.bind((address, port))
        except OSError:
            return False
    return True


def test_a_single_node_needs_nothing(create):
    handler = create()
    info = handler.next_rendezvous()
    assert (info.rank, info.world_size) == (0, 1)
    assert info.bootstrap_store_info.master_addr == "127.0.0.1"
    assert handler.use_agent_store
    port = info.bootstrap_store_info.master_port
    assert info.hosting.store.port == port
    assert not can_listen("127.0.0.1", port), "nobody can take it"
    assert handler.get_run_id() == "run"
    assert handler.num_nodes_waiting() == 0
    assert not handler.needs_polling
    assert not handler.is_closed()
    handler.set_closed()
    assert handler.is_closed()
    assert handler.shutdown()
    assert can_listen("127.0.0.1", port)


def test_rank_0_may_serve_itself(create, monkeypatch):
    info = create(store_host="rank0").next_rendezvous()
    assert can_listen("127.0.0.1", info.bootstrap_store_info.master_port)
    assert not create(store_host="rank0").use_agent_store
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    assert not create().use_agent_store
    with pytest.raises(InputError, match="--store-host 'me': write agent or rank0"):
        make(store_host="me")


def test_a_port_for_jax_is_held_in_the_way_that_lets_it_in(create):
    info = create().next_rendezvous()
    port = info.coordinator_port
    assert not can_listen("127.0.0.1", port)
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("::", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass


def test_a_port_that_is_taken_is_named(create):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"--master-port {port}: .*in use"):
            create(endpoint=f"127.0.0.1:{port}").next_rendezvous()


@pytest.mark.parametrize("backend", ["static", "c10d", "etcd"])
def test_a_single_node_meets_nobody_whatever_the_backend(create, backend):
    handler = create(backend)
    assert handler.get_backend() == backend
    assert handler.next_rendezvous().world_size == 1


def test_each_round_has_a_fresh_store(create):
    handler = create()
    handler.next_rendezvous().store.set("key", "value")
    assert not handler.next_rendezvous().store.check(["key"])


def test_the_advertised_address(create):
    assert create(local_addr="127.0.0.2").next_rendezvous().bootstrap_store_info.master_addr == "127.0.0.2"


def test_several_nodes_meet_in_a_store(create):
    assert isinstance(create(endpoint="127.0.0.1:1234", nodes=(2, 2), rank=1), ElasticRendezvous)
    assert isinstance(create(endpoint="127.0.0.1:1234"), StaticRendezvous)


def test_a_given_port_is_used_by_a_single_node_too(create):
    assert create(endpoint="127.0.0.1:1234").next_rendezvous().bootstrap_store_info.master_port == 1234


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": (1, 2), "rank": 0}, "--nnodes 1:2.*fixed number"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": 2}, "--node-rank 2: 2 nodes have ranks 0 to 1"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": -1}, "--node-rank -1"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": "x"}, "rank=x: write a whole number"),
        ({"nodes": (2, 2), "endpoint": "a:1"}, "--node-rank None: 2 nodes have ranks 0 to 1"),
        ({"nodes": (2, 2), "rank": 0}, "--master-addr: several nodes need the address of node 0"),
        ({"nodes": (2, 2), "endpoint": "a:1", "rank": 0, "meeting_port": 1}, "meeting_port=1: .*other than"),
        ({"nodes": (2, 2), "endpoint": "node:x:c", "rank": 0}, "--rdzv-endpoint 'node:x:c'"),
        ({"nodes": (2, 2), "endpoint": "a:x", "rank": 0}, "--rdzv-endpoint 'a:x'.*HOST:PORT"),
        ({"backend": "nonsense"}, "--rdzv-backend 'nonsense'.*c10d.*static"),
        ({"backend": "c10d", "nodes": (2, 2)}, "--rdzv-backend c10d: give --rdzv-endpoint HOST:PORT"),
        ({"backend": "etcd-v2"}, "etcd-v2: etcd has removed its v2 API; write --rdzv-backend etcd"),
        ({"nodes": (0, 1)}, "at least 1"),
        ({"nodes": (2, 1)}, "is less than min_nodes"),
        ({"backend": ""}, "no rendezvous backend given"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        make(**options)


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


@pytest.mark.parametrize("endpoint", ["", ":1", "host:-1", "host:", f"host:{'9' * 5_000}", f"[::1]:{'9' * 5_000}"])
def test_bad_endpoints(endpoint):
    with pytest.raises(InputError, match="HOST:PORT"):
        parse_endpoint(endpoint, 7)


@pytest.mark.parametrize("endpoint", ["::::", ":::", "a:b:c", "[::::]:29500", "[1:2]", "1:2:3:4:5:6:7:8:9"])
def test_colons_that_make_no_address_are_named_as_the_mistake(endpoint):
    with pytest.raises(InputError, match=r"^--rdzv-endpoint '.*': .* is no IPv6 address; write HOST:PORT, such as "):
        parse_endpoint(endpoint, 7)


@pytest.mark.parametrize("endpoint", ["192.0.2.2:99999", "[fd00::1]:65536"])
def test_a_port_that_does_not_exist_is_named_as_the_mistake(endpoint):
    with pytest.raises(InputError, match=r"^--rdzv-endpoint '.*': the port must be 1 to 65535$"):
        parse_endpoint(endpoint, 7)


def test_a_free_port_of_an_address_that_is_not_ours():
    assert 0 < free_port("192.0.2.1") < 1 << 16


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (None, ("localhost", 7)),
        ("", ("localhost", 7)),
        ("  ", ("localhost", 7)),
        (" node0 ", ("node0", 7)),
        ("node0:0", ("node0", 0)),
        ("a_b-c.d:65535", ("a_b-c.d", 65535)),
        ("[::1]", ("::1", 7)),
        ("[::1]:5", ("::1", 5)),
    ],
)
def test_what_an_endpoint_does_not_say_is_filled_in(endpoint, expected):
    assert parse_rendezvous_endpoint(endpoint, 7) == expected


@pytest.mark.parametrize("endpoint", ["h:", "h:x", "h:65536", "h:-1", "h:1:2", ":1", "[]:1", "h h", "a/b", "h:\uff11"])
def test_a_bad_host_or_port_is_a_value_error(endpoint):
    with pytest.raises(ValueError, match=r"^--rdzv-endpoint "):
        parse_rendezvous_endpoint(endpoint, 7)


@pytest.mark.parametrize("host", ["%", "fe801%eth0", "1.2.3.4", "node0"])
def test_only_an_ipv6_address_has_brackets(host):
    with pytest.raises(InputError, match="is no IPv6 address"):
        parse_endpoint(f"[{host}]:29500", 1)
