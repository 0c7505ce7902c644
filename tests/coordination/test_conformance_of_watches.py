"""What every engine does: each sentence of the interface about watches, and about clients beside each other."""

from __future__ import annotations

import asyncio

import pytest
from store_words import do, put

from holdfast.coordination.errors import CompactedError, StoreUnavailableError
from holdfast.coordination.model import (
    Change,
    Changes,
    Delete,
    DeletePrefix,
    Entry,
    Modified,
    Put,
    Transaction,
    absent,
)


def test_a_watch_begins_with_the_revision_it_was_given(meet):
    async def story(engine):
        store = engine.client()
        await put(store, "key", b"1")
        second = await put(store, "key", b"2")
        third = await put(store, "key", b"3")
        watch = store.watch("key", second)
        assert [(await anext(watch)).revision for _ in range(2)] == [second, third]
        fourth = await put(store, "key", b"4")
        assert (await anext(watch)).revision == fourth
        watch.close()

    meet(story)


def test_a_watch_that_begins_now_delivers_nothing_of_the_past(meet):
    async def story(engine):
        store = engine.client()
        now = await put(store, "key", b"1")
        watch = store.watch("key", now + 1)
        revision = await put(store, "key", b"2")
        assert (await anext(watch)).revision == revision
        watch.close()

    meet(story)


def test_a_watch_that_begins_in_the_future_delivers_nothing_before_it(meet):
    async def story(engine):
        store = engine.client()
        now = await put(store, "key", b"1")
        watch = store.watch("key", now + 3)
        for value in (b"2", b"3", b"4"):
            await put(store, "key", value)
        assert (await anext(watch)).revision == now + 3
        watch.close()

    meet(story)


def test_a_change_has_the_entry_that_was_put_or_none_if_it_was_deleted(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        created = await put(store, "key", b"1", lease.id)
        modified = await put(store, "key", b"2")
        deleted = await do(store, Delete("key"))
        watch = store.watch("key", created)
        assert [await anext(watch) for _ in range(3)] == [
            Changes(created, (Change("key", Entry("key", b"1", created, created, lease.id)),)),
            Changes(modified, (Change("key", Entry("key", b"2", created, modified)),)),
            Changes(deleted, (Change("key"),)),
        ]
        watch.close()

    meet(story)


@pytest.mark.parametrize("is_past", [True, False], ids=["past", "live"])
def test_a_watch_delivers_one_batch_for_each_revision(meet, is_past):
    async def story(engine):
        store = engine.client()
        before = await do(store, Put("a/old", b""), Put("b/old", b""))
        watch = None if is_past else store.watch("a/", before + 1)
        first = await do(store, Put("a/1", b""), Put("a/2", b""), Put("b/1", b""), Delete("a/old"))
        await do(store, Put("b/2", b""))
        third = await do(store, DeletePrefix("a/"))
        watch = watch or store.watch("a/", before + 1)
        batches = [await anext(watch) for _ in range(2)]
        watch.close()
        assert [batch.revision for batch in batches] == [first, third]
        assert sorted((change.key, change.entry is not None) for change in batches[0].changes) == [
            ("a/1", True),
            ("a/2", True),
            ("a/old", False),
        ]
        assert sorted(change.key for change in batches[1].changes) == ["a/1", "a/2"]

    meet(story)


def test_every_watch_gets_what_is_under_its_prefix(meet):
    async def story(engine):
        one, other = engine.client(), engine.client()
        start = await put(one, "start")
        prefixes = ["", "a", "a/", "a/b", "a/", "b"]
        watches = [(one if n % 2 else other).watch(prefix, start + 1) for n, prefix in enumerate(prefixes)]
        for key in ["a", "a/b/c", "b", "a/x", "end", "a", "a/b", "b"]:
            await put(one, key, key.encode())
        expected = {"": "a a/b/c b a/x end a a/b b", "a": "a a/b/c a/x a a/b", "a/": "a/b/c a/x a/b"}
        expected |= {"a/b": "a/b/c a/b", "b": "b b"}
        for prefix, watch in zip(prefixes, watches, strict=True):
            for key in expected[prefix].split():
                assert [change.key for change in (await anext(watch)).changes] == [key]
            watch.close()

    meet(story)


def test_a_watch_leaves_nothing_out_while_others_write(meet):
    async def story(engine):
        store, writers = engine.client(), [engine.client() for _ in range(5)]
        start = await put(store, "n/start")

        async def write(number):
            return [await put(writers[number], f"n/{number}", str(n).encode()) for n in range(40)]

        watch = store.watch("n/", start + 1)
        written, seen = await asyncio.gather(
            asyncio.gather(*map(write, range(5))), asyncio.gather(*(anext(watch) for _ in range(1)))
        )
        while len(seen) < 200:
            seen.append(await anext(watch))
        watch.close()
        revisions = [changes.revision for changes in seen]
        assert revisions == sorted(revision for own in written for revision in own)

    meet(story)


def test_a_watch_that_is_closed_ends(meet):
    async def story(engine):
        store = engine.client()
        revision = await put(store, "key")
        watch = store.watch("key", revision)
        assert (await anext(watch)).revision == revision
        waiting = asyncio.ensure_future(anext(watch, None))
        await put(store, "other")
        assert not waiting.done()
        watch.close()
        assert await waiting is None
        watch.close()
        assert [changes async for changes in watch] == []

    meet(story)


def test_a_watch_that_was_never_read_can_be_closed(meet):
    async def story(engine):
        store = engine.client()
        unused = engine.client()
        unused.watch("key", 1).close()
        watch = store.watch("key", 1)
        watch.close()
        assert [changes async for changes in watch] == []

    meet(story)


def test_the_other_watches_go_on_when_one_is_closed(meet):
    async def story(engine):
        store = engine.client()
        revision = await put(store, "key")
        first, second = store.watch("key", revision), store.watch("key", revision)
        await anext(first)
        first.close()
        await put(store, "key")
        assert [(await anext(second)).revision for _ in range(2)] == [revision, revision + 1]
        second.close()

    meet(story)


def test_a_reader_that_is_cancelled_loses_nothing(meet):
    async def story(engine):
        store = engine.client()
        revision = await put(store, "key")
        watch = store.watch("key", revision)
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await put(store, "other")
        waiting.cancel()
        await asyncio.wait([waiting])
        after = await put(store, "key")
        assert (await anext(watch)).revision == after
        watch.close()

    meet(story)


def test_a_watch_from_a_revision_that_is_forgotten_says_so(meet):
    async def story(engine):
        store = engine.client()
        first = await put(store, "key", b"1")
        for value in (b"2", b"3", b"4"):
            await put(store, "key", value)
        await engine.compact()
        watch = store.watch("key", first)
        with pytest.raises(CompactedError):
            await anext(watch)
        watch.close()
        snapshot = await store.get_prefix("key")
        assert snapshot.entries[0].value == b"4"
        watch = store.watch("key", snapshot.revision + 1)
        last = await put(store, "key", b"5")
        assert (await anext(watch)).revision == last
        watch.close()

    meet(story)


def test_a_watch_that_is_under_way_does_not_mind_what_is_forgotten(meet):
    async def story(engine):
        store = engine.client()
        revision = await put(store, "key")
        watch = store.watch("key", revision)
        await anext(watch)
        await put(store, "other")
        await engine.compact()
        revision = await put(store, "key")
        assert (await anext(watch)).revision == revision
        watch.close()

    meet(story)


# Clients


def test_increments_of_many_clients_sum_up(meet):
    async def story(engine):
        async def increment(store, times):
            for _ in range(times):
                while True:
                    entry = await store.get("sum")
                    count, modified = (int(entry.value), entry.modified) if entry else (0, 0)
                    transaction = Transaction((Modified("sum", modified),), (Put("sum", str(count + 1).encode()),))
                    if (await store.transact(transaction)).succeeded:
                        break

        await asyncio.gather(*(increment(engine.client(), 5) for _ in range(10)))
        assert (await engine.client().get("sum")).value == b"50"

    meet(story)


def test_of_many_that_want_to_be_first_one_is(meet):
    async def story(engine):
        clients = [engine.client() for _ in range(10)]
        claims = [
            client.transact(Transaction((absent("leader"),), (Put("leader", str(n).encode()),)))
            for n, client in enumerate(clients)
        ]
        outcomes = await asyncio.gather(*claims)
        assert sum(outcome.succeeded for outcome in outcomes) == 1
        winner = next(n for n, outcome in enumerate(outcomes) if outcome.succeeded)
        assert (await clients[0].get("leader")).value == str(winner).encode()

    meet(story)


def test_one_client_can_be_asked_many_things_at_once(meet):
    async def story(engine):
        store = engine.client()
        await asyncio.gather(*(put(store, f"n/{n:03}", str(n).encode()) for n in range(100)))
        entries = await asyncio.gather(*(store.get(f"n/{n:03}") for n in range(100)))
        assert [int(entry.value) for entry in entries] == list(range(100))

    meet(story)


def test_what_one_client_wrote_another_reads(meet):
    async def story(engine):
        one, other = engine.client(), engine.client()
        for n in range(10):
            await put(one, "key", str(n).encode())
            assert (await other.get("key")).value == str(n).encode()

    meet(story)


def test_a_client_that_is_closed_says_so(meet):
    async def story(engine):
        store, unused = engine.client(), engine.client()
        revision = await put(store, "key")
        watch = store.watch("key", revision + 1)
        waiting = asyncio.ensure_future(anext(watch, None))
        await store.get("key")
        for client in (store, unused):
            await client.close()
            await client.close()
            with pytest.raises(StoreUnavailableError):
                await client.get("key")
            with pytest.raises(StoreUnavailableError):
                await anext(client.watch("key", revision))
        assert await waiting is None

    meet(story)


def test_a_client_is_a_context_manager(meet):
    async def story(engine):
        async with engine.client() as store:
            await put(store, "key")
            assert store.local_address() is None or isinstance(store.local_address(), str)
        with pytest.raises(StoreUnavailableError):
            await store.get("key")

    meet(story)
