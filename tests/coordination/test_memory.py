"""The memory engine, where it differs from what all engines do."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.coordination.errors import CompactedError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.model import Put, Transaction

PUT = Transaction((), (Put("key", b""),))


def test_stores_without_a_common_key_space_are_apart():
    async def story():
        async with MemoryStore() as one, MemoryStore() as other:
            await one.transact(PUT)
            assert await other.get("key") is None

    asyncio.run(story())


def test_more_past_than_a_watch_may_hold_has_to_be_read_anew():
    async def story():
        async with MemoryStore(KeySpace(), backlog_max=2) as store:
            for _ in range(4):
                await store.transact(PUT)
            watch = store.watch("key", 2)
            assert [(await anext(watch)).revision for _ in range(2)] == [2, 3]
            with pytest.raises(CompactedError):
                await anext(watch)
            assert store.keyspace._watches == {}

    asyncio.run(story())


def test_watches_that_have_ended_are_forgotten():
    async def story():
        async with MemoryStore() as store:
            for _ in range(10):
                store.watch("key", 1).close()
            assert store._watches == set()
            store.watch("key", 1)
        assert store._watches == set()
        assert store.keyspace._watches == {}

    asyncio.run(story())


def test_leases_end_while_any_store_of_the_key_space_is_open():
    async def story():
        keyspace = KeySpace()
        async with MemoryStore(keyspace) as one, MemoryStore(keyspace) as other:
            lease = await one.grant(0.1)
            await one.transact(Transaction((), (Put("key", b"", lease.id),)))
            watch = other.watch("key", 3)
            await other.get("key")
            await one.close()
            async with asyncio.timeout(60):
                assert (await anext(watch)).changes[0].entry is None

    asyncio.run(story())
