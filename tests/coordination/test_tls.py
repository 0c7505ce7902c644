"""TLS on both sides, with certificates of an authority that was made for the test."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from raw_peer import RawPeer

from holdfast.coordination import server as server_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreRefusedError, StoreUnavailableError
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.tls import client_context, server_context
from holdfast.errors.tree import InputError

TOKEN = b"secret"
PUT = Transaction((), (Put("key", bytes(300_000)),))


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A directory with two authorities, `ca` and `strangers`, and `node`, which has a certificate of the first."""
    directory = tmp_path_factory.mktemp("certificates")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "strangers"):
        openssl(
            directory, "req", "-x509", *new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"
        )
    openssl(
        directory,
        *("req", "-x509", *new, "-keyout", "node.key", "-out", "node.pem", "-subj", "/CN=node"),
        *("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1,DNS:node"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
    )
    openssl(directory, "ec", "-in", "node.key", "-out", "locked.key", "-aes256", "-passout", "pass:word")
    return directory


def paths(directory, *names):
    return [str(directory / name) for name in names]


def run(story, tls):
    async def tell():
        server = EmbeddedServer(token=TOKEN, tls=tls)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(120):
                await story(server)
        finally:
            await server.close()

    asyncio.run(tell())


def client(server, tls, **arguments):
    return EmbeddedStore(*server.address, **{"token": TOKEN, "tls": tls, "connect_timeout_s": 60, **arguments})


def test_the_store_is_served_over_tls(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            revision = (await store.transact(PUT)).revision
            watch = store.watch("key", revision)
            assert len((await anext(watch)).changes[0].entry.value) == 300_000
            watch.close()
            assert store.local_address() == "127.0.0.1"
            assert server.connections == 1

    run(story, server_context(*paths(certificates, "node.pem", "node.key")))


def test_a_server_of_another_authority_is_refused(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "strangers.pem"))) as store:
            with pytest.raises(StoreRefusedError, match=r"no TLS connection to the store at .*certificate"):
                await store.get("key")

    run(story, server_context(*paths(certificates, "node.pem", "node.key")))


def test_a_certificate_must_name_the_host(certificates):
    async def story(server):
        tls = client_context(*paths(certificates, "ca.pem"))
        async with EmbeddedStore("localhost", server.address[1], token=TOKEN, tls=tls) as store:
            with pytest.raises(StoreRefusedError, match="localhost"):
                await store.get("key")

    run(story, server_context(*paths(certificates, "node.pem", "node.key")))


def test_a_server_may_want_to_see_certificates_itself(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "ca.pem", "node.pem", "node.key"))) as store:
            await store.transact(PUT)
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            with pytest.raises((StoreRefusedError, StoreUnavailableError), match="certificate"):
                await store.get("key")

    run(story, server_context(*paths(certificates, "node.pem", "node.key", "ca.pem")))


def test_the_token_counts_over_tls_too(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "ca.pem")), token=b"other") as store:
            with pytest.raises(StoreRefusedError, match="HOLDFAST_TOKEN"):
                await store.get("key")

    run(story, server_context(*paths(certificates, "node.pem", "node.key")))


def test_tls_on_one_side_only_does_not_connect(certificates):
    async def plain_server(server):
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            with pytest.raises(StoreRefusedError, match="no TLS connection"):
                await store.get("key")

    async def plain_client(server):
        async with client(server, None, connect_timeout_s=0.3) as store:
            with pytest.raises(StoreUnavailableError, match="does not answer"):
                await store.get("key")

    run(plain_server, None)
    run(plain_client, server_context(*paths(certificates, "node.pem", "node.key")))


def test_those_that_do_not_come_to_speak_tls_are_dropped(certificates, monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(server_module, "UNPROVEN_MAX", 2)

    async def story(server):
        peers = [RawPeer(server.address) for _ in range(4)]
        for peer in peers:
            await peer.__aenter__()
        peers[3].send_bytes(b"no TLS at all\n" * 10)
        for peer in peers:
            await peer.ended()
            await peer.__aexit__()
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            await store.transact(PUT)

    run(story, server_context(*paths(certificates, "node.pem", "node.key")))


def test_files_that_cannot_be_used_are_named(certificates, tmp_path):
    missing = str(tmp_path / "missing.pem")
    ca, cert, key, locked = paths(certificates, "ca.pem", "node.pem", "node.key", "locked.key")
    for make in (
        lambda: server_context(missing, key),
        lambda: server_context(cert, missing),
        lambda: server_context(cert, ca),
        lambda: server_context(cert, locked),
        lambda: server_context(cert, key, missing),
        lambda: client_context(missing),
        lambda: client_context(key),
        lambda: client_context(ca, missing, key),
        lambda: client_context(ca, None, key),
    ):
        with pytest.raises(InputError, match=r"TLS .*\.(pem|key)'"):
            make()


def test_the_systems_authorities_are_trusted_unless_one_is_named():
    assert client_context().check_hostname
