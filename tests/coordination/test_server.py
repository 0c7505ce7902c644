"""Where the server listens, whom it lets in, and what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest
from embedded_server import TOKEN, ServerProcess
from raw_peer import RawPeer

from holdfast.coordination import server as server_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreRefusedError, StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.server import EmbeddedServer

PUT = Transaction((), (Put("key", b"value"),))


def run(story, host="127.0.0.1", **arguments):
    async def tell():
        server = EmbeddedServer(token=TOKEN, **arguments)
        await server.start(host, 0)
        try:
            async with asyncio.timeout(120):
                await story(server)
        finally:
            await server.close()

    asyncio.run(tell())


def client(server):
    return EmbeddedStore(*server.address, token=TOKEN, connect_timeout_s=60, answer_timeout_s=60)


# Listening


def test_it_listens_on_exactly_the_address_it_was_given():
    async def story(server):
        host, port = server.address
        assert host == "127.0.0.3"
        async with client(server) as store:
            await store.transact(PUT)
        async with EmbeddedStore("127.0.0.1", port, token=TOKEN) as store:
            with pytest.raises(StoreUnavailableError) as raised:
                await store.get("key")
            assert raised.value.is_gone

    run(story, host="127.0.0.3")


@pytest.mark.parametrize(
    ("host", "reached"), [("0.0.0.0", "127.0.0.5"), ("", "127.0.0.5"), ("::1", "::1"), ("::", "127.0.0.5")]
)
def test_it_listens_where_it_is_told(host, reached):
    if ":" in host and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")

    async def story(server):
        async with EmbeddedStore(reached, server.address[1], token=TOKEN) as store:
            await store.transact(PUT)
            assert store.local_address() is not None

    run(story, host=host)


def test_an_address_that_is_taken_or_of_another_machine_is_the_callers_to_know():
    async def story(server):
        second = EmbeddedServer()
        with pytest.raises(OSError, match="in use") as raised:
            await second.start(*server.address)
        assert raised.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match="assign") as raised:
            await second.start("192.0.2.1", 0)
        assert raised.value.errno == errno.EADDRNOTAVAIL
        await second.close()

    run(story)


def test_a_port_is_free_again_when_its_server_is_closed():
    async def story(server):
        address = server.address
        async with client(server) as store:
            await store.transact(PUT)
            await server.close()
            second = EmbeddedServer(server.keyspace, token=TOKEN)
            await second.start(*address)
            with pytest.raises(StoreUnavailableError):
                await store.get("key")
            assert (await store.get("key")).value == b"value"
            await second.close()

    run(story)


def test_it_serves_the_keyspace_that_it_is_given():
    keyspace = KeySpace()
    keyspace.transact(PUT)

    async def story(server):
        async with client(server) as store:
            assert (await store.get("key")).value == b"value"

    run(story, keyspace=keyspace)


def test_close_ends_all_connections():
    async def story(server):
        async with client(server) as store, RawPeer(server.address) as silent, RawPeer(server.address) as proven:
            await proven.prove(TOKEN)
            revision = (await store.transact(PUT)).revision
            watch = store.watch("", revision + 1)
            await store.get("key")
            assert server.connections == 2
            await server.close()
            assert server.connections == 0
            await silent.ended()
            await proven.ended()
            with pytest.raises(StoreUnavailableError):
                await anext(watch)
            await server.close()

    run(story)


def test_close_waits_for_nobody_who_does_not_read():
    async def story(server):
        async with client(server) as store, RawPeer(server.address, receive_buffer_bytes=4096) as peer:
            await store.transact(Transaction((), (Put("long", bytes(1_000_000)),)))
            await peer.prove(TOKEN)
            from holdfast.coordination.wire import GetPrefix

            for number in range(1, 10):
                peer.send(number, GetPrefix(""))
            await store.get("key")
            await server.close()

    run(story)


# Whoever does not prove itself


def test_a_silent_client_is_dropped_in_time(monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def story(server):
        async with client(server) as store, RawPeer(server.address) as silent, RawPeer(server.address) as other:
            await store.transact(PUT)
            await silent.ended()
            await other.ended()
            assert (await store.get("key")).value == b"value"  # who has proved itself may be silent for longer
            assert server.connections == 1

    run(story)


def test_a_client_that_takes_too_long_over_its_proof_is_dropped(monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 0.3)

    async def story(server):
        async with client(server) as store, RawPeer(server.address) as slow:
            proof = bytes(100)

            async def trickle():
                for byte in proof * 1000:
                    slow.send_bytes(bytes([byte]))
                    await store.get("key")

            trickling = asyncio.ensure_future(trickle())
            await slow.ended()
            trickling.cancel()
            await asyncio.wait([trickling])

    run(story)


def test_of_many_without_proof_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr(server_module, "UNPROVEN_MAX", 3)

    async def story(server):
        peers = [RawPeer(server.address) for _ in range(5)]
        for peer in peers:
            await peer.__aenter__()
            await peer.greeting()
        await peers[0].ended()
        await peers[1].ended()
        async with client(server) as store:  # one more than may be there, and it is served
            await store.transact(PUT)
        await peers[2].ended()
        proof = await _late_proof(peers[4])
        assert proof
        for peer in peers:
            await peer.__aexit__()

    async def _late_proof(peer):
        peer.send_bytes(b"\0" * 8)
        return (await peer.parting()).text

    run(story)


def test_those_without_proof_do_not_use_up_the_descriptors():
    async def story(address):
        silent = []
        try:
            for _ in range(300):
                connection = socket.create_connection(address)
                silent.append(connection)
            async with EmbeddedStore(*address, token=TOKEN, connect_timeout_s=60, answer_timeout_s=60) as store:
                async with asyncio.timeout(60):
                    while True:
                        try:
                            assert (await store.transact(PUT)).succeeded
                            break
                        except StoreUnavailableError:
                            continue  # dropped among the many: an honest client comes again
        finally:
            for connection in silent:
                connection.close()

    with ServerProcess(descriptors_max=64) as server:
        asyncio.run(story(server.address))
        assert server.finish() == 0


# How many it lets in


def test_it_lets_in_as_many_clients_as_it_may_and_another_one_when_one_has_left():
    async def story(server):
        left = asyncio.Event()
        ended = server.ended

        def tell(connection):
            ended(connection)
            if connection.is_proven:
                left.set()

        server.ended = tell
        async with client(server) as first, client(server) as second:
            await first.get("key")
            await second.transact(PUT)
            async with client(server) as third:
                with pytest.raises(StoreRefusedError, match="as many nodes as the job has are connected"):
                    await third.get("key")
            assert (await first.get("key")).value == b"value"
            await second.close()
            await left.wait()
            async with client(server) as third:
                assert (await third.get("key")).value == b"value"

    run(story, members_max=2)


def test_who_has_not_proved_anything_takes_up_no_place():
    async def story(server):
        async with RawPeer(server.address) as stranger:
            assert await stranger.greeting()
            async with EmbeddedStore(*server.address, token=b"another") as wrong:
                with pytest.raises(StoreRefusedError, match="token"):
                    await wrong.get("key")
            async with client(server) as member:
                await member.transact(PUT)

    run(story, members_max=1)
