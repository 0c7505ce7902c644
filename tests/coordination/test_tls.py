"""TLS on both sides: with a certificate of the store's own, or of an authority that was made for the test."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from raw_peer import RawPeer

from holdfast.coordination import server as server_module
from holdfast.coordination import tcp
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreRefusedError, StoreReplacedError, StoreUnavailableError
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.server_connection import ServerConnection
from holdfast.coordination.tls import client_context, own_client_context, own_server_tls, server_tls
from holdfast.coordination.unproven import Stage
from holdfast.coordination.wire import Failed, Get, Reason, encode, frame
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

    run(story, server_tls(*paths(certificates, "node.pem", "node.key")))


def test_a_server_of_another_authority_is_refused(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "strangers.pem"))) as store:
            with pytest.raises(StoreRefusedError, match=r"no TLS connection to the store at .*certificate"):
                await store.get("key")

    run(story, server_tls(*paths(certificates, "node.pem", "node.key")))


def test_a_certificate_must_name_the_host(certificates):
    async def story(server):
        tls = client_context(*paths(certificates, "ca.pem"))
        async with EmbeddedStore("localhost", server.address[1], token=TOKEN, tls=tls) as store:
            with pytest.raises(StoreRefusedError, match="localhost"):
                await store.get("key")

    run(story, server_tls(*paths(certificates, "node.pem", "node.key")))


def test_a_server_may_want_to_see_certificates_itself(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "ca.pem", "node.pem", "node.key"))) as store:
            await store.transact(PUT)
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            with pytest.raises((StoreRefusedError, StoreUnavailableError), match="certificate"):
                await store.get("key")

    run(story, server_tls(*paths(certificates, "node.pem", "node.key", "ca.pem")))


def test_the_token_counts_over_tls_too(certificates):
    async def story(server):
        async with client(server, client_context(*paths(certificates, "ca.pem")), token=b"other") as store:
            with pytest.raises(StoreRefusedError, match="HOLDFAST_TOKEN"):
                await store.get("key")

    run(story, server_tls(*paths(certificates, "node.pem", "node.key")))


def test_a_client_that_needs_tls_says_nothing_in_plain_text(certificates):
    async def story(server):
        for tls in (client_context(*paths(certificates, "ca.pem")), own_client_context()):
            async with client(server, tls) as store:
                with pytest.raises(StoreRefusedError, match="does not speak TLS"):
                    await store.get("key")
        assert server.connections == 0

    run(story, None)


def test_a_client_that_does_not_know_that_the_server_speaks_tls_does_so_too(certificates):
    """Its endpoint may be a tunnel on its own machine."""

    async def story(server):
        async with client(server, None) as store:
            await store.transact(PUT)

    run(story, own_server_tls())
    run(story, server_tls(*paths(certificates, "node.pem", "node.key")))


def test_a_certificate_file_may_have_more_in_it(certificates, tmp_path):
    node, ca, key = (path.read_text() for path in (certificates / name for name in ("node.pem", "ca.pem", "node.key")))
    whole = tmp_path / "whole.pem"
    whole.write_text(f"{key}some words, k\u00f6nnte sein\n{node}{ca}", encoding="utf-8")

    async def story(server):
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            await store.transact(PUT)

    run(story, server_tls(str(whole), str(whole)))


def test_those_that_do_not_come_to_speak_tls_are_dropped(certificates, monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(server_module, "UNPROVEN_MAX", 2)

    async def story(server):
        peers = [RawPeer(server.address) for _ in range(4)]
        for peer in peers:
            await peer.__aenter__()
            await peer.greeting()
        peers[3].send_bytes(b"no TLS at all\n" * 10)
        for peer in peers:
            await peer.ended()
            await peer.__aexit__()
        async with client(server, client_context(*paths(certificates, "ca.pem"))) as store:
            await store.transact(PUT)

    run(story, server_tls(*paths(certificates, "node.pem", "node.key")))


def test_files_that_cannot_be_used_are_named(certificates, tmp_path):
    missing = str(tmp_path / "missing.pem")
    ca, cert, key, locked = paths(certificates, "ca.pem", "node.pem", "node.key", "locked.key")
    for make in (
        lambda: server_tls(missing, key),
        lambda: server_tls(cert, missing),
        lambda: server_tls(cert, ca),
        lambda: server_tls(cert, locked),
        lambda: server_tls(cert, key, missing),
        lambda: client_context(missing),
        lambda: client_context(key),
        lambda: client_context(ca, missing, key),
        lambda: client_context(ca, None, key),
    ):
        with pytest.raises(InputError, match=r"TLS .*\.(pem|key)'"):
            make()


@pytest.mark.parametrize("kind", ["X509", "TRUSTED"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_certificate_in_a_form_that_only_openssl_knows_is_refused(certificates, tmp_path, kind, is_alone):
    """OpenSSL shows the first certificate of a file, whatever its form. The proofs have to contain the same one."""
    path = tmp_path / "other.pem"
    if kind == "TRUSTED":
        openssl(certificates, "x509", "-in", "node.pem", "-trustout", "-addtrust", "serverAuth", "-out", str(path))
    else:
        path.write_text((certificates / "node.pem").read_text().replace(" CERTIFICATE", " X509 CERTIFICATE"))
    if not is_alone:
        path.write_text(path.read_text() + (certificates / "ca.pem").read_text())
    with pytest.raises(InputError, match=rf"other\.pem' begins with BEGIN {kind} CERTIFICATE.*; .*openssl x509"):
        server_tls(str(path), *paths(certificates, "node.key"))


def test_what_people_write_above_a_certificate_is_not_taken_for_it(certificates, tmp_path):
    path = tmp_path / "noted.pem"
    path.write_text("Below -----BEGIN CERTIFICATE----- is ours.\n" + (certificates / "node.pem").read_text())
    plain, key = paths(certificates, "node.pem", "node.key")
    assert server_tls(str(path), key).binding == server_tls(plain, key).binding


def test_the_systems_authorities_are_trusted_unless_one_is_named():
    assert client_context().check_hostname


class Between:
    """Somebody between clients and the server, who has no token. `pass_on` is given each piece and its direction, and
    returns what is passed on; `with_tls` ends the client's TLS there and begins one of its own.
    """

    def __init__(self, server, pass_on=lambda data, _to_server: data, *, with_tls=None):
        self._server = server
        self._pass_on = pass_on
        self._with_tls = with_tls
        self.seen = b""
        self._tasks = set()

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.address = self._listener.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _meet(self, reader, writer):
        theirs = await asyncio.open_connection(*self._server.address)
        if self._with_tls is not None:
            greeting = await theirs[0].read(1 << 16)
            await theirs[1].start_tls(own_client_context())
            writer.write(greeting)  # the client begins with TLS when it has this
            await writer.start_tls(self._with_tls)
        for source, sink, to_server in ((reader, theirs[1], True), (theirs[0], writer, False)):
            task = asyncio.create_task(self._pump(source, sink, to_server))
            self._tasks.add(task)

    async def _pump(self, source, sink, to_server):
        try:
            while data := await source.read(1 << 16):
                self.seen += data
                sink.write(self._pass_on(data, to_server))
        except OSError:
            pass
        finally:
            sink.close()


def run_between(story, tls, **arguments):
    async def tell(server):
        async with Between(server, **arguments) as between:
            await story(server, between)

    run(tell, tls)


def client_of(between, **arguments):
    return EmbeddedStore(*between.address, **{"token": TOKEN, "tls": own_client_context(), **arguments})


def test_a_store_of_its_own_certificate_is_served_and_nobody_in_between_can_read_it():
    async def story(_server, between):
        async with client_of(between) as store:
            await store.transact(Transaction((), (Put("the key", b"what nobody else may read"),)))
            assert (await store.get("the key")).value == b"what nobody else may read"
        assert len(between.seen) > 1000
        for secret in (b"the key", b"nobody else", TOKEN):
            assert secret not in between.seen

    run_between(story, own_server_tls())


def test_somebody_in_between_with_a_certificate_of_their_own_gets_no_proof_through():
    async def story(server, between):
        for token in (TOKEN, b"other"):
            async with client_of(between, token=token) as store:
                with pytest.raises(StoreRefusedError, match="may be intercepted"):
                    await store.get("key")
        assert server.connections == 0

    run_between(story, own_server_tls(), with_tls=own_server_tls().context)


def test_somebody_in_between_cannot_talk_a_client_out_of_tls():
    """The server's greeting is changed into one of a server without TLS; only the last byte of it says so."""

    def without_tls(data, to_server):
        return data if to_server or data[-1:] != b"\xc3" else data[:-1] + b"\xc2"

    async def story(server, between):
        async with client_of(between) as store:
            with pytest.raises(StoreRefusedError, match="does not speak TLS"):
                await store.get("key")
        async with client_of(between, tls=None, connect_timeout_s=60) as store:
            with pytest.raises((StoreRefusedError, StoreUnavailableError)):
                await store.get("key")
        assert server.connections == 0

    run_between(story, own_server_tls(), pass_on=without_tls)


def test_what_somebody_puts_behind_the_greeting_is_not_taken_for_the_servers_word():
    def with_more(data, to_server):
        if to_server or data[-1:] != b"\xc3":
            return data
        return data + frame(0, encode(Failed(Reason.REFUSED, "wrong token")))

    async def story(_server, between):
        async with client_of(between) as store:
            with pytest.raises(StoreUnavailableError, match="more than a greeting"):
                await store.get("key")

    run_between(story, own_server_tls(), pass_on=with_more)


def test_what_somebody_changes_on_the_way_only_breaks_the_connection():
    changes = []

    def changed(data, to_server):
        if changes and not to_server:
            changes.pop()
            return data[:-1] + bytes([data[-1] ^ 1])
        return data

    async def story(_server, between):
        async with client_of(between, answer_timeout_s=60) as store:
            await store.transact(PUT)
            changes.append(1)
            with pytest.raises(StoreUnavailableError, match="cannot be read"):
                await store.get("key")
            assert await store.get("key") is not None, "it connects again"

    run_between(story, own_server_tls(), pass_on=changed)


def test_a_refusal_that_anybody_can_send_does_not_end_a_client_that_has_used_the_store():
    refusing = []

    def refused(data, to_server):
        if refusing and not to_server:
            return frame(0, encode(Failed(Reason.REFUSED, "wrong token")))
        return data

    async def story(_server, between):
        async with client_of(between) as store:
            await store.transact(PUT)
            refusing.append(1)
            for connection in list(between._tasks):
                connection.cancel()
            with pytest.raises(StoreUnavailableError):
                await store.get("key")
            with pytest.raises(StoreReplacedError, match="token"):
                await store.get("key")
            refusing.clear()
            assert await store.get("key") is not None

    run_between(story, own_server_tls(), pass_on=refused)


def test_a_store_that_refuses_those_it_let_in_is_another_one():
    async def story(server, between):
        async with client_of(between) as store:
            await store.transact(PUT)
            server._token = b"other"
            for connection in list(between._tasks):
                connection.cancel()
            with pytest.raises(StoreUnavailableError):
                await store.get("key")
            for _ in range(2):
                with pytest.raises(StoreReplacedError, match="token") as raised:
                    await store.get("key")
                assert not raised.value.is_proven

    run_between(story, own_server_tls())


def test_connections_without_proof_cost_no_more_than_they_must(monkeypatch):
    """Those that are silent have no TLS at all, and of those that have begun there is a limit."""
    monkeypatch.setattr(server_module, "TLS_UNPROVEN_MAX", 3)

    async def story(server):
        silent = [RawPeer(server.address) for _ in range(5)]
        begun = [RawPeer(server.address, tls=own_client_context()) for _ in range(5)]
        for peer in silent + begun:
            await peer.__aenter__()
            await peer.greeting()
        for peer in begun:
            await peer.start_tls()
        assert server._unproven.count(Stage.BEGUN, Stage.CONTINUED) == 3
        assert len(server._unproven) == 8, "two were dropped"
        for peer in begun[:2]:
            assert await peer.ended() == b""
        async with client(server, own_client_context()) as store:
            await store.transact(PUT)
        for peer in silent + begun:
            await peer.__aexit__()

    run(story, own_server_tls())


def test_members_are_served_between_the_handshakes_of_a_crowd(monkeypatch):
    """All of the crowd begin with TLS at once. A member that asks then is answered before most of them are."""
    monkeypatch.setattr(server_module, "HANDSHAKES_MAX", 1)
    crowd = 30

    async def story(server):
        async with client(server, own_client_context()) as member:
            await member.transact(PUT)
            peers = [RawPeer(server.address, tls=own_client_context()) for _ in range(crowd)]
            for peer in peers:
                await peer.__aenter__()
                await peer.greeting()
            made, has_begun = [], asyncio.Event()
            shake_hands = ServerConnection.shake_hands

            def counted(*arguments):
                made.append(1)
                has_begun.set()
                shake_hands(*arguments)

            monkeypatch.setattr(ServerConnection, "shake_hands", counted)
            starting = [asyncio.create_task(peer.start_tls()) for peer in peers]
            await has_begun.wait()
            await member.get("key")
            assert len(made) < crowd
            await asyncio.gather(*starting)
            assert len(made) >= crowd
            for peer in peers:
                await peer.__aexit__()

    run(story, own_server_tls())


def test_who_sends_without_end_and_without_a_proof_is_dropped():
    async def story(server):
        async with RawPeer(server.address, tls=own_client_context()) as peer:
            await peer.greeting()
            await peer.start_tls()
            for _ in range(8):  # frames of no length; each is read, and is no proof
                peer.send_bytes(bytes(16 << 10))
            await peer.ended()
        async with RawPeer(server.address) as peer:
            await peer.greeting()
            peer.send_bytes(b"\x16\x03\x01\xff\xff" + bytes(200_000))
            await peer.ended()
        async with client(server, own_client_context()) as store:
            await store.transact(PUT)

    run(story, own_server_tls())


def test_who_breaks_tls_and_reads_nothing_is_dropped(monkeypatch):
    """What waits for it must not keep the connection open until the kernel ends it."""
    monkeypatch.setattr(tcp, "SILENCE_MAX_S", 600)

    async def story(server):
        async with client(server, own_client_context()) as store:
            await store.transact(Transaction((), (Put("key", bytes(60_000)),)))
            async with RawPeer(server.address, tls=own_client_context(), receive_buffer_bytes=4096) as peer:
                await peer.prove(TOKEN)
                peer.writer.transport.pause_reading()
                while not server._common.held.bytes:  # then the server still reads: it holds less than a full outbox
                    peer.send(1, Get("key"))
                    await store.get("key")
                assert server.connections == 2
                peer.send_below_tls(b"\x17\x03\x03\x00\x20" + bytes(32))
                while server.connections == 2:
                    await store.get("key")
                assert server._common.held.bytes == 0

    run(story, own_server_tls())


def test_a_proof_is_needed_also_over_tls():
    async def story(server):
        async with RawPeer(server.address, tls=own_client_context()) as peer:
            await peer.greeting()
            await peer.start_tls()
            peer.send(1, Get("key"))
            assert (await peer.parting()).reason is Reason.PROTOCOL

    run(story, own_server_tls())


def test_every_store_has_a_key_of_its_own():
    assert own_server_tls().binding != own_server_tls().binding
