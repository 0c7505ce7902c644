"""Crowds of strangers at the door of a store: what they cost, and that those who belong there get in.

All addresses 127.x.y.z are this machine's, so a crowd can come from many sources.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import weakref

import embedded_server
import pytest
import tls_flood
from embedded_server import TOKEN, ServerProcess
from network import Network
from raw_peer import RawPeer

from holdfast.coordination import server as server_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.handshake import VERSION, Challenge, Proof, make_nonce, prove
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.server_connection import ServerConnection
from holdfast.coordination.tls import own_client_context, own_server_tls
from holdfast.coordination.tls_session import TlsSession
from holdfast.coordination.wire import THE_CONNECTION, encode, frame

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
                assert len(server._first_messages) == min(number, 5)
            for peer in peers[:15]:
                await peer.ended()
        assert len(server._first_messages) == 5
        await server.close()
        assert len(server._first_messages) == 0
        for peer in peers:
            await peer.__aexit__()

    asyncio.run(story())


class Joiner:
    """A machine that joins step by step, and sends what it is told to."""

    def __init__(self, address):
        self._peer = RawPeer(address, source="127.0.3.1")
        self._session = TlsSession(own_client_context())

    async def start(self):
        """Come so far that the server has answered the first message; returns the second one, with the proof."""
        await self._peer.__aenter__()
        greeting = await self._peer.greeting()
        self._session.receive(b"")
        self._peer.send_bytes(self._session.to_send())
        while not self._session.is_established:
            self._session.receive(await self._peer.reader.read(1 << 16))
        second = self._session.to_send()
        challenge = Challenge(greeting.nonce, make_nonce(), greeting.store, self._session.binding())
        proof = Proof(VERSION, challenge.client_nonce, prove(TOKEN, "client", challenge))
        return second + self._session.seal(frame(THE_CONNECTION, encode(proof)))

    def send(self, data):
        self._peer.send_bytes(data)

    async def is_let_in(self):
        """Whether the server answers the proof. It ends the connection otherwise."""
        text = b""
        while not text:
            data = await self._peer.reader.read(1 << 16)
            if not data:
                return False
            text = self._session.receive(data)
        return True

    async def stop(self):
        await self._peer.__aexit__()


class Arrivals:
    """What the server has to do for connections without proof, counted. It can be held back."""

    def __init__(self, server, monkeypatch):
        self._server = server
        self._monkeypatch = monkeypatch
        self._changed = asyncio.Event()
        self._count = 0
        self.steps = []
        take_turn, shake_hands = server.take_turn, ServerConnection.shake_hands

        def counted_turn(connection, data):
            take_turn(connection, data)
            self._count += 1
            self._changed.set()

        def counted_step(connection, data):
            self.steps.append(connection.source)
            self._changed.set()
            shake_hands(connection, data)

        monkeypatch.setattr(server, "take_turn", counted_turn)
        monkeypatch.setattr(ServerConnection, "shake_hands", counted_step)

    async def wait_for(self, *, turns=0, steps=0):
        """Wait until so many messages have come, and so many were served, since it began."""
        while self._count < turns or len(self.steps) < steps:
            self._changed.clear()
            await self._changed.wait()

    def hold(self):
        self._held = self._server._shake_hands
        self._monkeypatch.setattr(self._server, "_shake_hands", lambda: None)

    def let_go(self):
        self._monkeypatch.setattr(self._server, "_shake_hands", self._held)
        self._held()


async def crowd_of(address, count):
    """Strangers that have heard the greeting, each from a source of its own."""
    strangers = [RawPeer(address, source=f"127.0.{4 + number // 250}.{1 + number % 250}") for number in range(count)]
    for stranger in strangers:
        await stranger.__aenter__()
        await stranger.greeting()
    return strangers


def test_a_second_message_is_served_before_all_first_ones(monkeypatch):
    """With one connection of each source, taking turns does not help: it would wait for all of them a second time."""
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 60.0)
    crowd = 40

    async def story():
        server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
        await server.start("127.0.0.1", 0)
        joiner = Joiner(server.address)
        async with asyncio.timeout(60):
            second_message = await joiner.start()
            strangers = await crowd_of(server.address, crowd)
            arrivals = Arrivals(server, monkeypatch)
            arrivals.hold()
            for stranger in strangers:
                stranger.send_bytes(hello())
            await arrivals.wait_for(turns=crowd)
            joiner.send(second_message)
            await arrivals.wait_for(turns=crowd + 1)
            arrivals.let_go()
            assert await joiner.is_let_in()
            await arrivals.wait_for(steps=crowd + 1)
        assert arrivals.steps.index("127.0.3.1") == 0
        for peer in (*strangers, joiner._peer):
            await peer.__aexit__()
        await server.close()

    asyncio.run(story())


@pytest.mark.parametrize("limited", ["TLS_UNPROVEN_MAX", "UNPROVEN_MAX"])
def test_whoever_has_answered_is_not_pushed_out_by_newcomers(monkeypatch, limited):
    """Neither by those who begin with TLS, nor by those who only connect."""
    crowd, limit = 40, 8
    monkeypatch.setattr(server_module, limited, limit)
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 60.0)

    async def story():
        server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
        await server.start("127.0.0.1", 0)
        arrivals = Arrivals(server, monkeypatch)
        joiner = Joiner(server.address)
        async with asyncio.timeout(60):
            second_message = await joiner.start()
            joiner.send(second_message[:10])
            await arrivals.wait_for(steps=2)
            strangers = await crowd_of(server.address, crowd)
            for stranger in strangers:
                stranger.send_bytes(hello())
            ends = asyncio.as_completed([stranger.ended() for stranger in strangers])
            for _, end in zip(range(crowd + 1 - limit), ends, strict=False):
                await end
            joiner.send(second_message[10:])
            assert await joiner.is_let_in()
        for peer in (*strangers, joiner._peer):
            await peer.__aexit__()
        await server.close()

    asyncio.run(story())


def test_first_messages_are_served_while_second_ones_keep_coming(monkeypatch):
    """Strangers who have answered, and go on byte by byte, do not keep those out who come to join."""
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 60.0)
    crowd = 40

    async def story():
        server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
        await server.start("127.0.0.1", 0)
        strangers = await crowd_of(server.address, crowd)
        async with asyncio.timeout(60):
            arrivals = Arrivals(server, monkeypatch)
            for stranger in strangers:
                stranger.send_bytes(hello())
            await arrivals.wait_for(steps=crowd)
            newcomer = RawPeer(server.address, source="127.0.3.2")
            await newcomer.__aenter__()
            await newcomer.greeting()
            arrivals.hold()
            for stranger in strangers:
                stranger.send_bytes(b"\x14")
            await arrivals.wait_for(turns=2 * crowd)
            newcomer.send_bytes(hello())
            await arrivals.wait_for(turns=2 * crowd + 1)
            arrivals.let_go()
            assert await newcomer.reader.readexactly(1)
            await arrivals.wait_for(steps=2 * crowd + 1)
        assert arrivals.steps.index("127.0.3.2") < 2 * crowd
        for peer in (*strangers, newcomer):
            await peer.__aexit__()
        await server.close()

    asyncio.run(story())


ATTEMPTS_MAX = 12
JOIN = f"""
import asyncio, sys
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.tls import own_client_context

async def join():
    for number in range({ATTEMPTS_MAX}):
        async with EmbeddedStore(sys.argv[1], int(sys.argv[2]), token={TOKEN!r}, tls=own_client_context()) as store:
            try:
                await store.get("key")
            except StoreUnavailableError as error:
                print(error)
            else:
                sys.exit(0)
    sys.exit(1)

asyncio.run(join())
"""


@pytest.mark.root
def test_a_machine_joins_while_another_one_floods_from_sixty_thousand_networks():
    with Network(3) as network:
        serving, flooding, joining = network.nodes
        for node, route in [(flooding, "local fd9a::/16 dev lo"), (serving, f"fd9a::/16 via {flooding.address6}")]:
            subprocess.run(["ip", "-6", "-n", node.namespace, "route", "add", *route.split()], check=True)
        program = [sys.executable, embedded_server.__file__, 0, "tls", os.geteuid(), serving.address6]
        server = serving.run(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        address = [serving.address6, int(server.stdout.readline())]
        flood = flooding.run(
            [sys.executable, tls_flood.__file__, *address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert flood.stdout.readline() == "flooding\n"
        joiner = joining.run([sys.executable, "-c", JOIN, *address], stdout=subprocess.PIPE, text=True)
        failures, _ = joiner.communicate(timeout=100)
        assert flood.poll() is None
        assert joiner.returncode == 0, failures
        flood.communicate(timeout=60)
        assert flood.returncode == 0
        server.communicate(timeout=60)
        assert server.returncode == 0
