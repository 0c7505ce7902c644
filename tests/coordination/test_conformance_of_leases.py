"""What every engine does: each sentence of the interface about leases."""

from __future__ import annotations

import asyncio
import time

import pytest
from store_words import deletion_of, do, keys, put, revision_of

from holdfast.coordination.errors import LeaseLostError
from holdfast.coordination.model import (
    NO_LEASE,
    Change,
    Delete,
    Put,
    Transaction,
    absent,
)


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
