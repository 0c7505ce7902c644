from __future__ import annotations

import asyncio

import pytest

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.model import OPERATIONS_MAX, Put, Transaction
from holdfast.rendezvous.forgetting import Forgotten, forget
from holdfast.rendezvous.records import End, EndKind, Keys, Node, encode

NODE = Node("host\x1b1", "10.0.0.1", 1, "default", 2)


def told(story):
    async def tell():
        async with MemoryStore(KeySpace()) as store:
            return await story(store)

    return asyncio.run(tell())


async def put(store, *keys, lease=0, value=b""):
    for key in keys:
        assert (await store.transact(Transaction((), (Put(key, value, lease),)))).succeeded


async def keys_in(store):
    return [entry.key for entry in (await store.get_prefix("")).entries]


@pytest.mark.parametrize("other", ["job10", "job", "job1/x", "job1 ", "JOB1"])
@pytest.mark.parametrize("force", [False, True])
def test_exactly_one_run_is_forgotten(other, force):
    async def story(store):
        mine, theirs = Keys("job1"), Keys(other)
        for keys in (mine, theirs):
            await put(store, keys.end, value=encode(End(EndKind.SUCCEEDED, "done")))
            await put(store, keys.generation, keys.done_by(1, "a"), f"{keys.values_of(1)}x")
        before = await keys_in(store)
        forgotten = await forget(store, mine, force=force)
        assert sorted(forgotten.deleted) == sorted(key for key in before if key.startswith(mine.run))
        assert len(forgotten.deleted) == 4
        assert await keys_in(store) == [key for key in before if not key.startswith(mine.run)]

    told(story)


def test_a_run_with_live_nodes_is_left_alone_unless_forced():
    async def story(store):
        keys = Keys("job1")
        lease = await store.grant(10)
        await put(store, keys.node("a.1"), lease=lease.id, value=encode(NODE))
        await put(store, keys.node("b.1"), lease=lease.id, value=b"of another version")
        await put(store, keys.generation)
        before = await keys_in(store)
        assert await forget(store, keys) == Forgotten((), ("host\\x1b1", "b.1"))
        assert await keys_in(store) == before
        assert len((await forget(store, keys, force=True)).deleted) == 3
        assert await keys_in(store) == []

    told(story)


def test_what_is_not_there_is_not_deleted():
    async def story(store):
        assert await forget(store, Keys("job1")) == Forgotten((), ())
        assert await forget(store, Keys("job1"), force=True) == Forgotten((), ())

    told(story)


def test_a_node_that_joins_in_the_meantime_keeps_its_records():
    async def story(store):
        keys = Keys("job1")
        await put(store, keys.end, keys.generation)
        lease = await store.grant(10)
        transact = store.transact

        async def late(transaction):
            store.transact = transact
            await put(store, keys.node("a.1"), keys.leader, lease=lease.id, value=encode(NODE))
            return await transact(transaction)

        store.transact = late
        assert (await forget(store, keys)).alive == ("host\\x1b1",)
        assert sorted(await keys_in(store)) == sorted([keys.end, keys.generation, keys.leader, keys.node("a.1")])

    told(story)


def test_any_number_of_records():
    async def story(store):
        keys = Keys("job1")
        await put(store, *(f"{keys.values_of(1)}{number}" for number in range(2 * OPERATIONS_MAX + 1)))
        assert len((await forget(store, keys)).deleted) == 2 * OPERATIONS_MAX + 1
        assert await keys_in(store) == []

    told(story)
