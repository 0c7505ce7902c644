"""What tests of every engine say to a store."""

from __future__ import annotations

from holdfast.coordination.model import (
    NO_LEASE,
    Change,
    Put,
    Transaction,
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
