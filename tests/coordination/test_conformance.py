"""What every engine does: each sentence of the data model and of the interface."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.coordination.errors import CompactedError, LeaseLostError, StoreUnavailableError
from holdfast.coordination.model import (
    KEY_MAX_BYTES,
    NO_LEASE,
    OPERATIONS_MAX,
    TRANSACTION_MAX_BYTES,
    VALUE_MAX_BYTES,
    Change,
    Changes,
    Created,
    Delete,
    DeletePrefix,
    Entry,
    Modified,
    Put,
    Transaction,
    absent,
)


async def do(store, *operations):
    """Carry out operations without conditions; returns the store's revision after them."""
    return (await store.transact(Transaction((), operations))).revision


async def put(store, key, value=b"v", lease=NO_LEASE):
    return await do(store, Put(key, value, lease))


async def revision_of(store):
    return (await store.get_prefix("")).revision


async def keys(store, prefix=""):
    return [entry.key for entry in (await store.get_prefix(prefix)).entries]


async def deletion_of(watch, key):
    """Read on until a key is deleted."""
    async for changes in watch:
        if Change(key) in changes.changes:
            return changes
    raise AssertionError(f"the watch ended and {key} was not deleted")


# Entries


def test_a_key_that_was_never_put_is_not_there(meet):
    async def story(engine):
        store = engine.client()
        assert await store.get("nothing") is None
        assert (await store.get_prefix("")).entries == ()

    meet(story)


def test_an_entry_knows_the_revisions_that_created_and_modified_it(meet):
    async def story(engine):
        store = engine.client()
        first = await put(store, "key", b"1")
        assert await store.get("key") == Entry("key", b"1", first, first)
        second = await put(store, "key", b"2")
        assert await store.get("key") == Entry("key", b"2", first, second)

    meet(story)


def test_a_key_that_was_deleted_and_put_again_is_created_anew(meet):
    async def story(engine):
        store = engine.client()
        await put(store, "key", b"old")
        await do(store, Delete("key"))
        assert await store.get("key") is None
        revision = await put(store, "key", b"new")
        assert await store.get("key") == Entry("key", b"new", revision, revision)

    meet(story)


@pytest.mark.parametrize("value", [b"", b"\0\xff\x80", bytes(VALUE_MAX_BYTES)], ids=["empty", "binary", "longest"])
def test_a_value_is_any_bytes(meet, value):
    async def story(engine):
        store = engine.client()
        await put(store, "key", value)
        entry = await store.get("key")
        assert entry.value == value

    meet(story)


@pytest.mark.parametrize("key", ["a b", "nodes/0", "é\U0001f600", "\0", "k" * KEY_MAX_BYTES])
def test_a_key_is_any_text(meet, key):
    async def story(engine):
        store = engine.client()
        revision = await put(store, key)
        assert await store.get(key) == Entry(key, b"v", revision, revision)
        assert await keys(store) == [key]

    meet(story)


def test_a_prefix_gives_its_entries_in_the_order_of_their_keys(meet):
    async def story(engine):
        store = engine.client()
        for key in ["n/b", "n/\U0001f600", "n/a", "n/\ufffd", "n/a/1", "n/"]:
            await put(store, key)
        assert await keys(store, "n/") == ["n/", "n/a", "n/a/1", "n/b", "n/\ufffd", "n/\U0001f600"]

    meet(story)


def test_a_prefix_gives_nothing_beside_it(meet):
    async def story(engine):
        store = engine.client()
        for key in ["n", "n.", "n/1", "n0", "m/1", "o"]:
            await put(store, key)
        assert await keys(store, "n/") == ["n/1"]
        assert await keys(store, "n") == ["n", "n.", "n/1", "n0"]
        assert await keys(store, "x") == []

    meet(story)


def test_a_snapshot_is_as_of_a_revision(meet):
    async def story(engine):
        store = engine.client()
        first = await put(store, "a/1")
        second = await put(store, "b/1")
        snapshot = await store.get_prefix("a/")
        assert snapshot.revision == second
        assert snapshot.entries == (Entry("a/1", b"v", first, first),)

    meet(story)


# Transactions


def test_what_changes_something_gives_the_next_revision(meet):
    async def story(engine):
        store = engine.client()
        before = await revision_of(store)
        assert await put(store, "a") == before + 1
        assert await put(store, "a") == before + 2  # the same value is a change, too
        assert await do(store, Delete("a")) == before + 3
        assert await revision_of(store) == before + 3

    meet(story)


def test_what_changes_nothing_gives_no_revision(meet):
    async def story(engine):
        store = engine.client()
        before = await put(store, "a")
        assert await do(store) == before
        assert await do(store, Delete("b"), DeletePrefix("c")) == before
        failed = await store.transact(Transaction((absent("a"),), (Put("a", b"2"),)))
        assert (failed.succeeded, failed.revision) == (False, before)
        assert await revision_of(store) == before

    meet(story)


def test_a_transaction_is_one_revision(meet):
    async def story(engine):
        store = engine.client()
        for key in ["old", "gone/1", "gone/2"]:
            await put(store, key)
        before = await revision_of(store)
        after = await do(store, Put("x", b"1"), Put("y", b"2"), Delete("old"), DeletePrefix("gone/"))
        assert after == before + 1
        entries = (await store.get_prefix("")).entries
        assert entries == (Entry("x", b"1", after, after), Entry("y", b"2", after, after))

    meet(story)


def test_if_the_compares_hold_it_does_the_one_and_else_the_other(meet):
    async def story(engine):
        store = engine.client()
        either = Transaction((absent("key"),), (Put("key", b"then"),), (Put("key", b"otherwise"),))
        first = await store.transact(either)
        assert first.succeeded
        assert (await store.get("key")).value == b"then"
        second = await store.transact(either)
        assert (second.succeeded, second.revision) == (False, first.revision + 1)
        assert (await store.get("key")).value == b"otherwise"

    meet(story)


def test_compares_are_with_the_revisions_of_an_entry(meet):
    async def story(engine):
        store = engine.client()
        created = await put(store, "key")
        modified = await put(store, "key")

        async def holds(*compares):
            return (await store.transact(Transaction(compares, ()))).succeeded

        assert await holds(Created("key", created), Modified("key", modified))
        assert not await holds(Created("key", modified))
        assert not await holds(Modified("key", created))
        assert not await holds(absent("key"))
        assert not await holds(Modified("key", 0))
        assert await holds(absent("other"), Created("other", 0), Modified("other", 0))
        assert not await holds(Created("other", created))
        assert not await holds(Modified("other", created))

    meet(story)


def test_all_compares_have_to_hold(meet):
    async def story(engine):
        store = engine.client()
        revision = await put(store, "key")
        transaction = Transaction((Modified("key", revision), absent("key")), (Delete("key"),))
        assert not (await store.transact(transaction)).succeeded
        assert await keys(store) == ["key"]

    meet(story)


@pytest.mark.parametrize(
    "operations",
    [
        (Put("a", b"1"), Put("a", b"2")),
        (Put("a", b"1"), Delete("a")),
        (Delete("a"), Delete("a")),
        (Put("a/b", b"1"), DeletePrefix("a/")),
        (Put("", b"1"),),
        (Delete(""),),
        (DeletePrefix(""),),
        (Put("k" * (KEY_MAX_BYTES + 1), b"1"),),
        (Put("é" * KEY_MAX_BYTES, b"1"),),
        (Put("a", bytes(VALUE_MAX_BYTES + 1)),),
        tuple(Put(key, bytes(TRANSACTION_MAX_BYTES // 2)) for key in "bcd"),
        tuple(Delete(str(n)) for n in range(OPERATIONS_MAX)),
    ],
    ids=[
        "put twice",
        "put and deleted",
        "deleted twice",
        "put under a deleted prefix",
        "put without a key",
        "delete without a key",
        "no prefix",
        "key too long",
        "key too long in bytes",
        "value too long",
        "values too long together",
        "too many operations",
    ],
)
@pytest.mark.parametrize("branch", ["then", "otherwise"])
def test_what_no_engine_accepts_is_rejected_and_changes_nothing(meet, operations, branch):
    async def story(engine):
        store = engine.client()
        await put(store, "a")
        before = await store.get_prefix("")
        mixed = (*operations, Put("z", b"z"))
        transaction = Transaction((), mixed) if branch == "then" else Transaction((absent("a"),), (), mixed)
        with pytest.raises(ValueError, match=r"."):
            await store.transact(transaction)
        with pytest.raises(ValueError, match=r"."):
            await store.transact(Transaction((absent(""),), ()))
        with pytest.raises(ValueError, match=r"."):
            await store.transact(Transaction((absent("b"),) * (OPERATIONS_MAX + 1), ()))
        assert await store.get_prefix("") == before

    meet(story)


def test_a_lease_takes_more_keys_than_a_transaction_can(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        for start in range(0, 3 * OPERATIONS_MAX, OPERATIONS_MAX):
            puts = (Put(f"n/{n:03}", b"", lease.id) for n in range(start, start + OPERATIONS_MAX))
            before = await do(store, *puts)
        watch = store.watch("n/", before + 1)
        await store.revoke(lease.id)
        assert len((await anext(watch)).changes) == 3 * OPERATIONS_MAX
        watch.close()
        assert await keys(store) == []

    meet(story)


def test_both_branches_may_name_a_key_that_is_compared(meet):
    async def story(engine):
        store = engine.client()
        await put(store, "a")
        outcome = await store.transact(Transaction((absent("a"),), (Put("a", b"1"),), (Delete("a"),)))
        assert not outcome.succeeded
        assert await keys(store) == []

    meet(story)


def test_a_key_may_be_deleted_by_name_and_with_its_prefix(meet):
    async def story(engine):
        store = engine.client()
        before = await do(store, Put("a/1", b""), Put("a/2", b""))
        watch = store.watch("a/", before + 1)
        assert await do(store, Delete("a/1"), DeletePrefix("a/")) == before + 1
        changes = await anext(watch)
        assert sorted(change.key for change in changes.changes) == ["a/1", "a/2"]
        watch.close()

    meet(story)


# Leases


def test_a_lease_is_at_least_as_long_as_was_asked(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(engine.ttl_s)
        assert lease.ttl_s >= engine.ttl_s
        assert await store.keep_alive(lease.id) == pytest.approx(lease.ttl_s)
        other = await store.grant(engine.ttl_s)
        assert NO_LEASE not in (lease.id, other.id)
        assert lease.id != other.id

    meet(story)


def test_a_lease_that_is_not_kept_alive_takes_its_keys(meet):
    async def story(engine):
        store = engine.client()
        short, long = await store.grant(engine.ttl_s), await store.grant(600)
        start = time.monotonic()
        await put(store, "a", b"", short.id)
        await put(store, "b", b"", short.id)
        await put(store, "c", b"", long.id)
        revision = await put(store, "d")
        assert (await store.get("a")).lease == short.id
        watch = store.watch("", revision + 1)
        changes = await anext(watch)
        watch.close()
        assert time.monotonic() - start >= short.ttl_s * 0.9
        assert changes.revision == revision + 1
        assert sorted(changes.changes, key=lambda change: change.key) == [Change("a"), Change("b")]
        assert await keys(store) == ["c", "d"]
        with pytest.raises(LeaseLostError):
            await store.keep_alive(short.id)
        await store.revoke(long.id)

    meet(story)


def test_a_lease_that_is_kept_alive_keeps_its_keys(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(max(engine.ttl_s, 1.0))
        await put(store, "key", b"", lease.id)
        end = time.monotonic() + 2.2 * lease.ttl_s
        while time.monotonic() < end:
            await store.keep_alive(lease.id)
            await asyncio.sleep(lease.ttl_s / 10)  # the passing of time is what is tested
        assert await keys(store) == ["key"]
        await store.revoke(lease.id)

    meet(story)


def test_a_lease_that_is_revoked_takes_its_keys_as_one_revision(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await do(store, Put("a", b"", lease.id), Put("b", b"", lease.id))
        before = await put(store, "c")
        await store.revoke(lease.id)
        assert await keys(store) == ["c"]
        assert await revision_of(store) == before + 1
        with pytest.raises(LeaseLostError):
            await store.keep_alive(lease.id)

    meet(story)


def test_to_revoke_a_lease_that_is_no_more_is_no_error(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await store.revoke(lease.id)
        await store.revoke(lease.id)
        with pytest.raises(LeaseLostError):
            await store.keep_alive(lease.id)

    meet(story)


def test_a_put_under_a_lease_that_is_no_more_changes_nothing(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await store.revoke(lease.id)
        await put(store, "a")
        before = await store.get_prefix("")
        with pytest.raises(LeaseLostError):
            await do(store, Delete("a"), Put("b", b""), Put("c", b"", lease.id))
        with pytest.raises(LeaseLostError):
            await store.transact(Transaction((absent("a"),), (), (Put("c", b"", lease.id),)))
        assert await store.get_prefix("") == before

    meet(story)


def test_a_lease_that_is_no_more_matters_only_where_it_is_used(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await store.revoke(lease.id)
        outcome = await store.transact(Transaction((absent("a"),), (Put("a", b""),), (Put("b", b"", lease.id),)))
        assert outcome.succeeded
        assert await keys(store) == ["a"]

    meet(story)


def test_a_key_that_is_put_without_its_lease_stays(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await put(store, "key", b"", lease.id)
        await put(store, "key", b"")
        assert (await store.get("key")).lease == NO_LEASE
        await store.revoke(lease.id)
        assert await keys(store) == ["key"]

    meet(story)


def test_a_key_that_moves_to_another_lease_ends_with_that_one(meet):
    async def story(engine):
        store = engine.client()
        first, second = await store.grant(600), await store.grant(600)
        await put(store, "key", b"", first.id)
        await put(store, "key", b"", second.id)
        await store.revoke(first.id)
        assert (await store.get("key")).lease == second.id
        await store.revoke(second.id)
        assert await keys(store) == []

    meet(story)


def test_a_key_without_a_lease_can_be_put_under_one(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await put(store, "key")
        await put(store, "key", b"", lease.id)
        await store.revoke(lease.id)
        assert await keys(store) == []

    meet(story)


def test_a_lease_outlives_its_keys(meet):
    async def story(engine):
        store = engine.client()
        lease = await store.grant(600)
        await put(store, "key", b"", lease.id)
        await do(store, Delete("key"))
        await store.keep_alive(lease.id)
        await put(store, "key", b"")
        await store.revoke(lease.id)
        assert await keys(store) == ["key"]

    meet(story)


def test_a_client_may_put_under_the_lease_of_another_and_keep_it_alive(meet):
    async def story(engine):
        one, other = engine.client(), engine.client()
        lease = await one.grant(600)
        await put(other, "key", b"", lease.id)
        assert await other.keep_alive(lease.id) == pytest.approx(lease.ttl_s)
        await other.revoke(lease.id)
        assert await keys(one) == []

    meet(story)


def test_leases_stay_when_their_client_is_closed(meet):
    async def story(engine):
        one, other = engine.client(), engine.client()
        lease = await one.grant(3)
        await put(one, "key", b"", lease.id)
        start = time.monotonic()
        watch = other.watch("key", await revision_of(other) + 1)
        await one.close()
        await deletion_of(watch, "key")
        watch.close()
        assert time.monotonic() - start >= lease.ttl_s * 0.8

    meet(story)


# Watches


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
