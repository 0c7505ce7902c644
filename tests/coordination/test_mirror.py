"""A copy that is kept up to date."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.mirror import Mirror, follow
from holdfast.coordination.model import Change, Changes, Delete, DeletePrefix, Entry, Put, Snapshot, Transaction


async def do(store, *operations):
    return (await store.transact(Transaction((), operations))).revision


def test_what_is_there_comes_first_and_then_what_changes(meet):
    async def story(engine):
        store, other = engine.client(), engine.client()
        first = await do(other, Put("n/1", b"1"), Put("m/1", b""))
        mirror = Mirror()
        async with aclosing(follow(store, "n/")) as news:
            snapshot = await anext(news)
            assert snapshot == Snapshot(first, (Entry("n/1", b"1", first, first),))
            mirror.apply(snapshot)
            second = await do(other, Put("n/2", b"2"), Put("m/2", b""))
            mirror.apply(await anext(news))
            assert mirror.entries == {
                "n/1": Entry("n/1", b"1", first, first),
                "n/2": Entry("n/2", b"2", second, second),
            }
            assert mirror.revision == second
            await do(other, Delete("m/1"))
            third = await do(other, DeletePrefix("n/"))
            mirror.apply(await anext(news))
            assert mirror.entries == {}
            assert mirror.revision == third

    meet(story)


def test_what_happens_between_two_looks_is_not_lost(meet):
    async def story(engine):
        store = engine.client()
        mirror = Mirror()
        async with aclosing(follow(store, "n/")) as news:
            mirror.apply(await anext(news))
            for n in range(50):
                last = await do(store, Put(f"n/{n:02}", b""))
            while mirror.revision < last:
                mirror.apply(await anext(news))
        assert list(mirror.entries) == [f"n/{n:02}" for n in range(50)]

    meet(story)


def test_where_changes_were_forgotten_there_is_a_new_snapshot():
    async def story():
        async with MemoryStore(KeySpace(), backlog_max=2) as store, aclosing(follow(store, "")) as news:
            assert isinstance(await anext(news), Snapshot)
            for n in range(4):
                last = await do(store, Put(str(n), b""))
            assert [type(await anext(news)) for _ in range(3)] == [Changes, Changes, Snapshot]
            last = await do(store, Put("last", b""))
            assert (await anext(news)).revision == last

    asyncio.run(story())


def test_it_ends_with_the_store():
    async def story():
        async with MemoryStore() as store, aclosing(follow(store, "")) as news:
            await anext(news)
            await store.close()
            assert [change async for change in news] == []
        async with aclosing(follow(store, "")) as news:
            with pytest.raises(StoreUnavailableError):
                await anext(news)

    asyncio.run(story())


def test_a_mirror_takes_no_steps_back():
    mirror = Mirror()
    assert (mirror.revision, mirror.entries) == (0, {})
    new, old = Entry("key", b"new", 2, 5), Entry("key", b"old", 2, 4)
    mirror.apply(Snapshot(5, (new,)))
    mirror.apply(Changes(4, (Change("key", old),)))
    mirror.apply(Changes(5, (Change("key"),)))
    assert (mirror.revision, mirror.entries) == (5, {"key": new})
    mirror.apply(Changes(6, (Change("key"), Change("other"))))
    assert (mirror.revision, mirror.entries) == (6, {})
