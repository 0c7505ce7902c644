"""What becomes of leases when connections end, and what a connection may ask for."""

from __future__ import annotations

import asyncio

import pytest
from raw_peer import RawPeer

from holdfast.coordination import service as service_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import LeaseLostError, StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import VALUE_MAX_BYTES, Change, Delete, DeletePrefix, Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.service import Service, Session
from holdfast.coordination.wire import (
    Failed,
    Get,
    GetPrefix,
    Grant,
    Granted,
    KeepAlive,
    Reason,
    Transact,
    Unwatch,
    WatchFrom,
    Watching,
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


async def vanish(peer):
    peer.vanish()


async def reset(peer):
    peer.reset()


async def break_the_protocol(peer):
    peer.send_bytes(b"\xff" * 8)
    await peer.ended()


@pytest.mark.parametrize("way", [vanish, reset, break_the_protocol])
def test_the_end_of_a_connection_does_not_shorten_a_lease(way):
    """Its holder may live, and its workers run until the fence, however long it takes to connect again."""

    async def story(server, other):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            (lease,) = await hold(peer, "key")
            ends = server.keyspace.next_expiry()
            await way(peer)
            while server.connections > 1:
                await other.get("key")
            assert server.keyspace.next_expiry() == ends
        assert await other.keep_alive(lease) == 3600
        assert await other.get("key") is not None

    run(story)


def test_the_leases_of_a_connection_that_the_server_drops_keep_their_time():
    async def story(server, other):
        async with RawPeer(server.address, receive_buffer_bytes=4096) as peer:
            await peer.prove(TOKEN)
            (lease,) = await hold(peer, "leases/kept")
            peer.send(3, WatchFrom("long", 1))
            while server.connections > 1:
                await other.transact(Transaction((), (Put("long", bytes(1_000_000)),)))
            assert await other.keep_alive(lease) == 3600

    run(story)


def test_whoever_knows_a_lease_may_end_it():
    """The keeper of an agent that was killed does so, over a connection of its own."""

    async def story(server, other):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            (lease,) = await hold(peer, "key")
            watch = other.watch("", 1)
            await other.revoke(lease)
            assert await next_deletion(watch) == "key"
            watch.close()
            assert (await peer.ask(3, KeepAlive(lease))).reason is Reason.LEASE_LOST

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


def test_a_connection_has_so_many_watches_and_no_more(monkeypatch):
    monkeypatch.setattr(service_module, "WATCHES_MAX", 2)

    async def story(service):
        session = Session(lambda *_: None)
        answers = [service.answer(session, channel, WatchFrom("", 1)) for channel in (1, 2, 3)]
        assert [isinstance(answer, Failed) for answer in answers] == [False, False, True]
        service.answer(session, 1, Unwatch())
        assert isinstance(service.answer(session, 3, WatchFrom("", 1)), Watching)

    serve(story)


def test_watches_of_all_connections_are_limited_and_some_are_left_to_other_sources(monkeypatch):
    monkeypatch.setattr(service_module, "WATCHES_IN_ALL_MAX", 10)

    async def story(service):
        greedy = [Session(lambda *_: None, "10.0.0.66") for _ in range(10)]
        answers = [service.answer(session, 1, WatchFrom("", 1)) for session in greedy]
        assert [isinstance(answer, Watching) for answer in answers] == [True] * 5 + [False] * 5
        assert answers[5].text == "too many watches: the store has 5, 5 of them from 10.0.0.66; end some"
        honest = Session(lambda *_: None, "10.0.0.1")
        assert isinstance(service.answer(honest, 1, WatchFrom("", 1)), Watching)
        service.leave(greedy[0])
        service.answer(greedy[1], 1, Unwatch())
        assert isinstance(service.answer(greedy[2], 2, WatchFrom("", 1)), Watching)

    serve(story)


def test_leases_that_outlive_their_connections_are_limited_and_harm_no_other_source():
    """Somebody connects, takes all leases that it gets, disconnects, and does so again and again."""

    async def story():
        server = EmbeddedServer(KeySpace(leases_max=100), token=TOKEN)
        await server.start("0.0.0.0", 0)
        address = ("127.0.0.1", server.address[1])
        granted, refused = 0, []
        for _ in range(10):
            async with RawPeer(address) as peer:
                await peer.prove(TOKEN)
                for _ in range(20):
                    answer = await peer.ask(1, Grant(3600))
                    granted += isinstance(answer, Granted)
                    refused += [answer] if isinstance(answer, Failed) else []
        assert granted == 50
        text = "too many leases: the store has 50, 50 of them from 127.0.0.1; revoke some, or wait until they expire"
        assert set(refused) == {Failed(Reason.FULL, text)}
        async with EmbeddedStore(*address, token=TOKEN) as store:
            with pytest.raises(StoreUnavailableError, match="too many leases"):  # there may be room later
                await store.grant(3600)
        for number in range(1, 21):
            async with EmbeddedStore(*address, token=TOKEN, source=f"127.0.1.{number}", answer_timeout_s=60) as honest:
                lease = await honest.grant(3600)
                await honest.transact(Transaction((), (Put(f"nodes/{number}", b"", lease.id),)))
                assert await honest.keep_alive(lease.id) == 3600
        await server.close()

    asyncio.run(story())


def test_a_listing_holds_nothing_that_was_deleted_since():
    async def story(service):
        session = Session(lambda *_: None)
        service.answer(session, 1, Transact(Transaction((), (Put("key", b"value"),))))
        service.answer(session, 2, GetPrefix(""))
        assert service._listed
        service.answer(session, 3, Transact(Transaction((), (Delete("key"),))))
        assert not service._listed
        service.answer(session, 4, GetPrefix(""))
        service.answer(session, 5, Transact(Transaction((), (Delete("key"),))))
        assert service._listed, "nothing has changed"

    serve(story)


def test_a_listing_that_is_too_long_for_an_answer_is_refused_before_it_is_encoded(monkeypatch):
    monkeypatch.setattr(service_module, "ANSWER_MAX_BYTES", 1_000)

    async def story(service):
        session = Session(lambda *_: None)
        for key in ("a", "b"):
            service.answer(session, 1, Transact(Transaction((), (Put(key, bytes(600)),))))
        failed = service.answer(session, 2, GetPrefix(""))
        assert failed == Failed(Reason.VALUE, "an answer of 1202 bytes, more than 1000; ask for a longer prefix")
        assert len(service.answer(session, 2, GetPrefix("a")).snapshot.entries) == 1

    serve(story)


def test_what_a_lease_says_when_it_is_no_more():
    async def story(server, other):
        with pytest.raises(LeaseLostError, match="lease 77 no longer exists"):
            await other.keep_alive(77)
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            assert (await peer.ask(1, KeepAlive(77))).reason is Reason.LEASE_LOST
            assert (await peer.ask(1, Get("key"))).entry is None

    run(story)


LONG = "k" * 100_000


@pytest.mark.parametrize(
    "operations",
    [
        (Put(LONG, b""), Put(LONG, b"")),
        tuple(Put(f"{number % 127:0>1000}", b"") for number in range(128)),
        (Put(LONG, b""), DeletePrefix("k")),
        (Put(LONG, b"x" * (VALUE_MAX_BYTES + 1)),),
        (Delete("\x1b" * 100_000),),
        (Put("\x1b" * 1_000, b"x" * (VALUE_MAX_BYTES + 1)),),
        (Put("\x1b" * 1_000, b"", 77),),
    ],
    ids=["twice", "many", "prefix", "value", "escapes", "value and escapes", "lease"],
)
def test_what_is_said_of_a_bad_transaction_is_short(operations):
    with asyncio.Runner() as runner:
        service = Service(KeySpace(), runner.get_loop())
        failed = service.answer(Session(lambda *_: None), 1, Transact(Transaction((), operations)))
    assert isinstance(failed, Failed)
    assert 0 < len(failed.text) <= 300
