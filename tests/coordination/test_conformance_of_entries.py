"""What every engine does: each sentence of the interface about entries and transactions."""

from __future__ import annotations

import pytest
from store_words import do, keys, put, revision_of

from holdfast.coordination.model import (
    KEY_MAX_BYTES,
    OPERATIONS_MAX,
    TRANSACTION_MAX_BYTES,
    VALUE_MAX_BYTES,
    Created,
    Delete,
    DeletePrefix,
    Entry,
    Modified,
    Put,
    Transaction,
    absent,
)


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
