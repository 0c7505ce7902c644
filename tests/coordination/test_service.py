"""Leases belong to whoever keeps them alive: what becomes of them when connections end."""

from __future__ import annotations

import asyncio

import pytest
from raw_peer import RawPeer

from holdfast.coordination import service as service_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import LeaseLostError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Change, Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.service import Service, Session
from holdfast.coordination.wire import (
    THE_CONNECTION,
    Failed,
    Get,
    GetPrefix,
    Goodbye,
    Grant,
    Granted,
    KeepAlive,
    Kept,
    Reason,
    Transact,
    WatchFrom,
)

TOKEN = b"secret"


def run(story):
    async def tell():
        server = EmbeddedServer(token=TOKEN)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(120), EmbeddedStore(*server.address, token=TOKEN, answer_timeout_s=60) as other:
                await story(server, other)
        finally:
            await server.close()

    asyncio.run(tell())


async def hold(peer, *keys):
    """A lease of an hour for each of these keys."""
    leases = []
    for key in keys:
        answer = await peer.ask(1, Grant(3600))
        await peer.ask(2, Transact(Transaction((), (Put(key, b"", answer.lease.id),))))
        leases.append(answer.lease.id)
    return leases


async def next_deletion(watch):
    async for changes in watch:
        for change in changes.changes:
            if change.entry is None:
                return change.key
    raise AssertionError("the watch ended")


@pytest.mark.parametrize("way", ["vanish", "reset"])
def test_the_keys_of_a_process_that_ends_go_soon(way):
    async def story(server, other):
        watch = other.watch("", 1)
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            await hold(peer, "key")
            getattr(peer, way)()
            assert await next_deletion(watch) == "key"
        watch.close()

    run(story)


def test_a_client_that_says_goodbye_keeps_its_leases():
    async def story(server, other):
        watch = other.watch("", 1)
        async with RawPeer(server.address) as leaving, RawPeer(server.address) as ending:
            await leaving.prove(TOKEN)
            await ending.prove(TOKEN)
            (lease,) = await hold(leaving, "kept")
            leaving.send(THE_CONNECTION, Goodbye())
            leaving.vanish()
            while server.connections > 2:
                await other.get("kept")
            await hold(ending, "ended")
            ending.vanish()
            assert await next_deletion(watch) == "ended"  # later, and yet the first to go
        assert (await other.get("kept")).lease == lease
        watch.close()

    run(story)


def test_a_store_that_is_closed_says_goodbye():
    async def story(server, other):
        watch = other.watch("", 1)
        async with RawPeer(server.address) as ending:
            await ending.prove(TOKEN)
            store = EmbeddedStore(*server.address, token=TOKEN)
            lease = await store.grant(3600)
            await store.transact(Transaction((), (Put("kept", b"", lease.id),)))
            await store.close()
            await hold(ending, "ended")
            ending.vanish()
            assert await next_deletion(watch) == "ended"
        assert await other.keep_alive(lease.id) == 3600
        watch.close()

    run(story)


def test_a_lease_that_is_kept_alive_over_another_connection_is_there(monkeypatch):
    monkeypatch.setattr(service_module, "CLOSED_GRACE_S", 2.0)  # the machine may be busy

    async def story(server, other):
        watch = other.watch("", 1)
        async with RawPeer(server.address) as first, RawPeer(server.address) as second:
            await first.prove(TOKEN)
            await second.prove(TOKEN)
            moved, _ = await hold(first, "moved", "left")
            first.vanish()
            while server.connections > 2:
                await other.get("moved")
            assert await second.ask(1, KeepAlive(moved)) == Kept(3600)
            assert await next_deletion(watch) == "left"
            assert (await other.get("moved")).lease == moved
            second.vanish()
            assert await next_deletion(watch) == "moved"
        watch.close()

    run(story)


def test_the_end_of_a_connection_means_nothing_to_leases_that_have_moved():
    async def story(server, other):
        watch = other.watch("", 1)
        async with RawPeer(server.address) as first, RawPeer(server.address) as second:
            await first.prove(TOKEN)
            await second.prove(TOKEN)
            moved, _ = await hold(first, "moved", "left")
            await second.ask(1, KeepAlive(moved))
            first.vanish()
            assert await next_deletion(watch) == "left"
            assert (await other.get("moved")).lease == moved
        watch.close()

    run(story)


def test_the_leases_of_a_connection_that_the_server_drops_keep_their_time():
    async def story(server, other):
        watch = other.watch("leases/", 1)
        async with RawPeer(server.address, receive_buffer_bytes=4096) as peer, RawPeer(server.address) as ending:
            await peer.prove(TOKEN)
            await hold(peer, "leases/kept")
            peer.send(3, WatchFrom("long", 1))
            while server.connections > 1:
                await other.transact(Transaction((), (Put("long", bytes(1_000_000)),)))
            await ending.prove(TOKEN)
            await hold(ending, "leases/ended")
            ending.vanish()
            assert await next_deletion(watch) == "leases/ended"
        assert await other.get("leases/kept") is not None
        watch.close()

    run(story)


def test_the_leases_of_a_connection_that_broke_the_protocol_keep_their_time():
    async def story(server, other):
        watch = other.watch("", 1)
        async with RawPeer(server.address) as peer, RawPeer(server.address) as ending:
            await peer.prove(TOKEN)
            await ending.prove(TOKEN)
            await hold(peer, "kept")
            peer.send_bytes(b"\xff" * 8)
            await peer.ended()
            await hold(ending, "ended")
            ending.vanish()
            assert await next_deletion(watch) == "ended"
        assert await other.get("kept") is not None
        watch.close()

    run(story)


def serve(story):
    """Without any connection: a service, and what its sessions are told."""

    async def tell():
        service = Service(KeySpace(), asyncio.get_running_loop())
        try:
            await story(service)
        finally:
            service.stop()

    asyncio.run(tell())


def test_the_alarm_goes_for_the_lease_that_ends_first():
    async def story(service):
        told = asyncio.Queue()
        session = Session(lambda channel, changed: told.put_nowait((channel, changed.changes)))
        service.answer(session, 1, WatchFrom("", 1))
        for ttl_s, key in ((0.4, "late"), (0.1, "soon"), (3600.0, "never")):
            granted = service.answer(session, 2, Grant(ttl_s))
            assert isinstance(granted, Granted)
            service.answer(session, 3, Transact(Transaction((), (Put(key, b"", granted.lease.id),))))
        for _ in range(3):
            await told.get()
        ended = [(await told.get())[1].changes for _ in range(2)]
        assert ended == [(Change("soon"),), (Change("late"),)]

    serve(story)


def test_a_snapshot_is_made_once_for_each_revision():
    async def story(service):
        session = Session(lambda *_: None)
        first = service.answer(session, 1, GetPrefix(""))
        assert service.answer(session, 2, GetPrefix("")) is first
        service.answer(session, 3, Transact(Transaction((), (Put("key", b""),))))
        second = service.answer(session, 4, GetPrefix(""))
        assert [entry.key for entry in second.snapshot.entries] == ["key"]
        assert service.answer(session, 5, GetPrefix("x")).snapshot.entries == ()

    serve(story)


def test_all_watches_are_told_of_a_change_with_one_object():
    async def story(service):
        told = []
        for channel in (1, 2):
            service.answer(Session(lambda _, changed: told.append(changed)), channel, WatchFrom("k", 1))
        service.answer(Session(lambda *_: None), 1, Transact(Transaction((), (Put("key", b""),))))
        assert len(told) == 2
        assert told[0] is told[1]

    serve(story)


def test_a_connection_has_so_many_watches_and_leases_and_no_more(monkeypatch):
    monkeypatch.setattr(service_module, "WATCHES_MAX", 2)
    monkeypatch.setattr(service_module, "LEASES_MAX", 2)

    async def story(service):
        session = Session(lambda *_: None)
        answers = [service.answer(session, channel, WatchFrom("", 1)) for channel in (1, 2, 3)]
        assert [isinstance(answer, Failed) for answer in answers] == [False, False, True]
        granted = [service.answer(session, 4, Grant(60.0)) for _ in range(3)]
        assert granted[2].reason is Reason.VALUE
        service.keyspace.revoke(granted[0].lease.id)  # as if it had run out
        assert isinstance(service.answer(session, 4, Grant(60.0)), Granted)
        assert isinstance(service.answer(Session(lambda *_: None), 4, Grant(60.0)), Granted)

    serve(story)


def test_what_a_lease_says_when_it_is_no_more():
    async def story(server, other):
        with pytest.raises(LeaseLostError, match="lease 77 is no more"):
            await other.keep_alive(77)
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            assert (await peer.ask(1, KeepAlive(77))).reason is Reason.LEASE_LOST
            assert (await peer.ask(1, Get("key"))).entry is None

    run(story)
