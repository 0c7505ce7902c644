"""What the settings of the embedded store mean: where it is, and how nodes prove themselves."""

from __future__ import annotations

import pytest

from holdfast.coordination.access import EmbeddedAccess
from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.embedded_settings import embedded_place

STRONG = "a secret of the test"


def place(endpoint="127.0.0.1:7", environ=None, users=frozenset(), **config):
    return embedded_place(RendezvousParameters("c10d", endpoint, "run", 1, 2, **config), 1.0, users, environ or {})


def test_a_place_is_reached_with_what_the_settings_say():
    assert place(token="t", users=frozenset({7})).access() == EmbeddedAccess(
        "127.0.0.1", 7, b"t", None, is_local=True, users=frozenset({7})
    )
    far = place("node7", environ={"HOLDFAST_TOKEN": STRONG})
    assert (far.name, far.hosts, far.may_return) == ("the store at node7:29400", ("node7",), False)
    assert far.access() == EmbeddedAccess("node7", 29400, STRONG.encode(), None, is_local=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": ""}, "give --rdzv-endpoint HOST:PORT, the address of the node that serves the store"),
        ({"endpoint": "a:0"}, "several nodes need the same port"),
        ({"store_type": "file"}, "--rdzv-conf store_type=file: only tcp is supported"),
        ({"endpoint": "node7"}, "--rdzv-endpoint node7:29400: .* set HOLDFAST_TOKEN"),
        ({"ssl_cert": "me.pem", "ssl_cert_key": "me.key"}, "TLS needs all three on every node"),
        ({"is_host": "perhaps"}, "--rdzv-conf is_host=perhaps"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        place(**options)
