"""Where the nodes of a static job meet, by what they were told."""

from __future__ import annotations

import pytest

from holdfast.coordination.access import EmbeddedAccess
from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.static_settings import static_place

STRONG = "a secret of the test"


def place(endpoint="node7", environ=None, users=frozenset(), nodes=2, **config):
    params = RendezvousParameters("static", endpoint, "run", nodes, nodes, **{"rank": 1, **config})
    return static_place(params, 1.0, users, environ or {})


@pytest.mark.parametrize(
    ("endpoint", "config", "expected"),
    [
        ("node7", {}, "node7:29501"),
        (" node7:4711 ", {}, "node7:4712"),
        ("[fd00::1]:4711", {}, "[fd00::1]:4712"),
        ("fd00::1", {}, "[fd00::1]:29501"),
        ("node7:65535", {}, "node7:65534"),
        ("node7:4711", {"meeting_port": "4709"}, "node7:4709"),
        ("node7:65535", {"meeting_port": 1}, "node7:1"),
    ],
)
def test_nodes_meet_beside_the_masters_port_or_where_they_are_told(endpoint, config, expected):
    made = place(endpoint, token=STRONG, **config)
    assert made.name == f"the store at {expected}"
    assert not made.may_return
    assert made.is_of_one_job


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": ""}, "--master-addr: several nodes need the address of node 0"),
        ({"endpoint": "node7:x"}, "--rdzv-endpoint 'node7:x'.*HOST:PORT"),
        ({"endpoint": "http://node7"}, "write HOST:PORT"),
        ({"endpoint": "node7:0"}, "--master-port 0: several nodes need the same port; write one above 0"),
        ({"meeting_port": "x"}, "meeting_port=x: write a whole number"),
        ({"meeting_port": "0"}, "meeting_port=0: write a port from 1 to 65535 other than --master-port, the same on"),
        ({"meeting_port": "-1"}, "meeting_port=-1: write a port"),
        ({"meeting_port": "65536"}, "meeting_port=65536: write a port"),
        ({"endpoint": "node7:4711", "meeting_port": "4711"}, "meeting_port=4711: .* other than --master-port"),
        ({"token": "short"}, "--master-addr node7: .*16 bytes"),
        ({"ssl_cert": "me.pem", "ssl_cert_key": "me.key"}, "TLS needs all three on every node"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        place(**options)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_without_a_token_is_warned_of_once_on_every_node(rank, caplog):
    made = place(rank=rank)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "meet at node7:29501 without a token" in said
    assert "set HOLDFAST_TOKEN to the output of `holdfast token` on all nodes" in said
    assert not made.has_trust


@pytest.mark.parametrize(
    ("endpoint", "config", "environ"),
    [
        ("node7", {}, {"HOLDFAST_TOKEN": STRONG}),
        ("node7", {"token": STRONG}, {}),
        ("127.0.0.1", {}, {}),
        ("localhost:29500", {}, {}),
        ("[::1]", {"token": "short"}, {}),
    ],
    ids=["environment", "setting", "loopback", "name of loopback", "loopback with a token"],
)
def test_nodes_with_a_token_or_on_one_machine_trust_each_other(endpoint, config, environ, caplog):
    assert place(endpoint, environ, **config).has_trust
    assert caplog.text == ""


def test_a_place_is_reached_with_what_the_settings_say():
    far = place("node7:7", {"HOLDFAST_TOKEN": STRONG}, frozenset({7})).access()
    assert far == EmbeddedAccess("node7", 8, STRONG.encode(), None, is_local=False, users=frozenset({7}))
    near = place("127.0.0.1:7").access()
    assert near == EmbeddedAccess("127.0.0.1", 8, b"", None, is_local=True)
