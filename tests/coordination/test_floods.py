"""Crowds of strangers at the door of a store: what they cost, and that those who belong there get in.

All addresses 127.x.y.z are this machine's, so a crowd can come from many sources.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

import pytest
from embedded_server import TOKEN, ServerProcess
from raw_peer import RawPeer

from holdfast.coordination import server as server_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.server_connection import ServerConnection
from holdfast.coordination.tls import own_client_context, own_server_tls
from holdfast.coordination.tls_session import TlsSession

FLOODS = 5
STRANGERS = 400
SOURCES = 20


def hello():
    """What a client says first in TLS."""
    session = TlsSession(own_client_context())
    session.receive(b"")
    return session.to_send()


def connected(address, number):
    """A stranger that has heard the greeting."""
    stranger = socket.create_connection(address, 60, source_address=(f"127.0.1.{1 + number % SOURCES}", 0))
    assert stranger.recv(4096)
    return stranger


def flood(address, first_words):
    """All are there at once, each is answered, and all go. Returns how many were answered."""
    strangers = [connected(address, number) for number in range(STRANGERS)]
    for stranger in strangers:
        stranger.sendall(first_words)
    answered = sum(bool(stranger.recv(4096)) for stranger in strangers)
    for stranger in strangers:
        stranger.close()
    return answered


async def let_in(address, source):
    """A machine of the job, from an address of its own. It is served after all that were there before it."""
    async with EmbeddedStore(
        *address, token=TOKEN, source=source, tls=own_client_context(), connect_timeout_s=60, answer_timeout_s=60
    ) as store:
        await store.get("key")


def test_floods_after_the_first_take_no_more_memory():
    with ServerProcess(has_tls=True) as server:
        asyncio.run(let_in(server.address, "127.0.0.2"))
        sizes = [server.memory_bytes()]
        for _ in range(FLOODS):
            assert flood(server.address, hello()) == STRANGERS
            asyncio.run(let_in(server.address, "127.0.0.2"))
            sizes.append(server.memory_bytes())
        first, later = sizes[1] - sizes[0], sizes[-1] - sizes[1]
        assert later <= first / 4, sizes
        assert server.finish() == 0


@pytest.mark.parametrize("has_proof", [False, True])
def test_nothing_of_a_connection_waits_for_the_garbage_collector(has_proof):
    async def story():
        server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
        await server.start("127.0.0.1", 0)
        gc.collect()
        gc.disable()
        try:
            async with asyncio.timeout(60), RawPeer(server.address, tls=own_client_context()) as peer:
                if has_proof:
                    await peer.prove(TOKEN)
                else:
                    await peer.greeting()
                    await peer.start_tls()
                (connection,) = server._open
                left = weakref.ref(connection), weakref.ref(connection._tls_session)
                del connection
                peer.vanish()
                while server._open:
                    server._has_ended.clear()
                    await server._has_ended.wait()
                assert [each() for each in left] == [None, None]
        finally:
            gc.enable()
            await server.close()

    asyncio.run(story())


def test_a_machine_that_joins_waits_for_one_of_each_source_and_not_for_the_crowd(monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKES_MAX", 1)
    crowd, sources = 300, 3

    async def story():
        server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
        await server.start("127.0.0.1", 0)
        strangers = [RawPeer(server.address, source=f"127.0.1.{1 + number % sources}") for number in range(crowd)]
        honest = RawPeer(server.address, tls=own_client_context(), source="127.0.2.1")
        for peer in (*strangers, honest):
            await peer.__aenter__()
        for stranger in strangers:
            await stranger.greeting()
        steps = []
        shake_hands = ServerConnection.shake_hands

        def counted(connection, data):
            steps.append(connection._transport.get_extra_info("peername")[0])
            shake_hands(connection, data)

        monkeypatch.setattr(ServerConnection, "shake_hands", counted)
        first_words = hello()
        for stranger in strangers:
            stranger.send_bytes(first_words)
        async with asyncio.timeout(60):
            await honest.prove(TOKEN)
            before = list(steps)
            for stranger in strangers:
                await stranger.reader.readexactly(1)
        assert before.count("127.0.2.1") >= 2
        assert len(steps) >= crowd
        assert len(before) < crowd, "it waited for all of them"
        for peer in (*strangers, honest):
            await peer.__aexit__()
        await server.close()

    asyncio.run(story())


def test_whoever_is_pushed_out_does_not_keep_its_turn(monkeypatch):
    """Otherwise those who wait would be more and more, and with them what they have sent."""
    monkeypatch.setattr(server_module, "UNPROVEN_MAX", 5)

    async def story():
        server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
        monkeypatch.setattr(server, "_shake_hands", lambda: None)  # nobody gets on
        await server.start("127.0.0.1", 0)
        waits, take_turn = asyncio.Event(), server.take_turn

        def told(connection, data):
            take_turn(connection, data)
            waits.set()

        monkeypatch.setattr(server, "take_turn", told)
        first_words = hello()
        peers = [RawPeer(server.address) for _ in range(20)]
        async with asyncio.timeout(60):
            for number, peer in enumerate(peers, 1):
                await peer.__aenter__()
                await peer.greeting()
                peer.send_bytes(first_words)
                await waits.wait()
                waits.clear()
                assert len(server._turns) == min(number, 5)
            for peer in peers[:15]:
                await peer.ended()
        assert len(server._turns) == 5
        await server.close()
        assert len(server._turns) == 0
        for peer in peers:
            await peer.__aexit__()

    asyncio.run(story())
