"""Two ends of TLS without a network between them."""

from __future__ import annotations

import ssl

import pytest

from holdfast.coordination.tls import own_client_context, own_server_tls
from holdfast.coordination.tls_session import READ_MAX_BYTES, TlsSession, binding_of


def ends():
    tls = own_server_tls()
    return TlsSession(own_client_context()), TlsSession(tls.context, server_side=True), tls


def established(piece_bytes=1 << 20):
    """Two ends after their handshake, whose data came in pieces."""
    client, server, tls = ends()
    assert client.receive(b"") == b""
    while not (client.is_established and server.is_established):
        for sender, receiver in ((client, server), (server, client)):
            data = sender.to_send()
            for at in range(0, len(data), piece_bytes):
                assert receiver.receive(data[at : at + piece_bytes]) == b""
    assert server.receive(client.to_send()) == b""
    return client, server, tls


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_a_handshake_however_its_data_is_cut(piece_bytes):
    client, server, _ = established(piece_bytes)
    assert server.receive(client.seal(b"question")) == b"question"
    assert client.receive(server.seal(memoryview(b"answer"))) == b"answer"
    assert client.to_send() == server.to_send() == b""


def test_what_is_sealed_cannot_be_read_on_the_way():
    client, _, _ = established()
    assert b"question" not in client.seal(b"question")


def test_much_is_read_at_once_and_a_part_of_a_record_is_kept():
    client, server, _ = established()
    sealed = client.seal(bytes(3 * READ_MAX_BYTES))
    first = server.receive(sealed[:-1])
    assert 0 < len(first) < 3 * READ_MAX_BYTES
    assert first + server.receive(sealed[-1:]) == bytes(3 * READ_MAX_BYTES)


def test_data_behind_the_handshake_is_read_with_it():
    client, server, _ = ends()
    client.receive(b"")
    server.receive(client.to_send())
    client.receive(server.to_send())
    assert client.is_established
    assert not server.is_established
    assert server.receive(client.to_send() + client.seal(b"at once")) == b"at once"
    assert server.is_established


def test_proofs_are_bound_to_the_servers_certificate():
    client, _, tls = established()
    assert client.binding() == tls.binding
    assert binding_of(b"a") != binding_of(b"b")


def test_what_is_no_tls_or_was_changed_is_an_error():
    client, server, _ = established()
    sealed = bytearray(client.seal(b"question"))
    sealed[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        server.receive(bytes(sealed))
    with pytest.raises(ssl.SSLError):
        ends()[1].receive(b"GET / HTTP/1.1\r\n\r\n")
