"""What a server holds for all its clients: how it is counted, and who has to go."""

from __future__ import annotations

import asyncio
import os

from raw_peer import RawPeer

from holdfast.coordination import held as held_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.held import MESSAGE_OVERHEAD_BYTES, Held
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.wire import HEADER, GetPrefix, WatchFrom

TOKEN = b"secret"


def test_a_body_that_waits_for_many_counts_once():
    held = Held()
    body, other = bytes(1_000), bytearray(1_000)
    for _ in range(3):
        held.add(body)
    held.add(bytes(other))
    assert held.bytes == 2_000 + 4 * MESSAGE_OVERHEAD_BYTES
    held.remove([body, body])
    assert held.bytes == 2_000 + 2 * MESSAGE_OVERHEAD_BYTES
    held.remove([body])
    assert held.bytes == 1_000 + MESSAGE_OVERHEAD_BYTES


def test_the_client_that_did_nothing_for_longest_goes(monkeypatch):
    monkeypatch.setattr(held_module, "HELD_MAX_BYTES", 100)
    held = Held()
    for client in ("silent", "reads", "done"):
        held.wait(client)
    assert held.surplus() is None
    held.add(bytes(101))
    assert held.surplus() == "silent"
    held.move("silent", is_waiting=True)
    assert held.surplus() == "reads"
    held.move("reads", is_waiting=False)
    assert held.surplus() == "done"
    held.move("done", is_waiting=False)
    held.move("silent", is_waiting=False)
    assert held.surplus() is None


def test_clients_are_dropped_until_little_enough_is_held(monkeypatch):
    monkeypatch.setattr(held_module, "HELD_MAX_BYTES", 100 + MESSAGE_OVERHEAD_BYTES)
    held, dropped = Held(), []

    class Client:
        def __init__(self):
            self.body = os.urandom(60)
            held.add(self.body)
            held.wait(self)

        def drop(self):
            dropped.append(self)
            held.remove([self.body])
            held.move(self, is_waiting=False)

    first, second, third = Client(), Client(), Client()
    held.drop_surplus()
    assert dropped == [first, second]
    held.drop_surplus()
    assert third not in dropped


def run(story):
    async def tell():
        server = EmbeddedServer(token=TOKEN)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(120), EmbeddedStore(*server.address, token=TOKEN, answer_timeout_s=60) as member:
                await story(server, member)
            while server.connections:
                server._has_ended.clear()
                await server._has_ended.wait()
            assert server._common.held.bytes == 0, "what connections held is counted on after their end"
        finally:
            await server.close()

    asyncio.run(tell())


def test_clients_that_do_not_read_share_one_limit_and_members_are_served(monkeypatch):
    """Each of them stays within its own limit."""
    monkeypatch.setattr(held_module, "HELD_MAX_BYTES", 8 << 20)

    async def story(server, member):
        silent = [RawPeer(server.address, receive_buffer_bytes=4096) for _ in range(10)]
        for peer in silent:
            await peer.__aenter__()
            await peer.prove(TOKEN)
        for number, peer in enumerate(silent):
            # A list of its own for each: 6 MiB, of which the kernel takes some.
            puts = [Put(f"{number}/{key}", bytes(1_000_000)) for key in range(6)]
            for put in puts:
                await member.transact(Transaction((), (put,)))
            peer.send(1, GetPrefix(f"{number}/"))
            peer.send(2, GetPrefix("nothing"))
            await member.get("key")
            assert server._common.held.bytes <= 8 << 20
            assert len((await member.get_prefix(f"{number}/")).entries) == 6
        while server.connections == 11:
            await member.get("key")
        await silent[0].ended()
        for peer in silent:
            await peer.__aexit__()

    run(story)


def test_requests_that_are_not_all_there_share_one_limit_and_members_are_served(monkeypatch):
    monkeypatch.setattr(held_module, "HELD_MAX_BYTES", 4 << 20)

    async def story(server, member):
        unfinished = [RawPeer(server.address) for _ in range(10)]
        for peer in unfinished:
            await peer.__aenter__()
            await peer.prove(TOKEN)
            peer.send_bytes(HEADER.pack(4 << 20, 1) + bytes(1 << 20))
            await peer.writer.drain()
            await member.transact(Transaction((), (Put("key", bytes(1_000_000)),)))
            assert server._common.held.bytes <= 4 << 20
        await unfinished[0].ended()
        for peer in unfinished:
            await peer.__aexit__()

    run(story)


def test_a_change_that_is_too_long_to_be_told_is_not_missed_silently(monkeypatch):
    """A watcher is dropped. When it comes back, it hears that it has to read everything again."""
    monkeypatch.setattr("holdfast.coordination.server_connection.ANSWER_MAX_BYTES", 1_000)

    async def story(server, member):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            await peer.ask(1, WatchFrom("", 1))
            await member.transact(Transaction((), (Put("key", bytes(2_000)),)))
            assert await peer.ended() == b""

    run(story)
