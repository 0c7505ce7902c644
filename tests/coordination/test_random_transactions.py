"""Random transactions on an engine and on a model that is too simple to be wrong."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.coordination.errors import LeaseLostError
from holdfast.coordination.model import (
    Change,
    Created,
    Delete,
    DeletePrefix,
    Entry,
    Modified,
    Put,
    Snapshot,
    Transaction,
    check,
)

KEYS = st.sampled_from(["a", "a/1", "a/2", "b", "b/1"])
PREFIXES = st.sampled_from(["a", "a/", "b", "c"])
LEASES = st.sampled_from([0, 0, 1, 2, 3])  # by the order in which they were granted; the third is never granted
REVISIONS = st.integers(0, 12)
COMPARES = st.one_of(st.builds(Created, KEYS, REVISIONS), st.builds(Modified, KEYS, REVISIONS))
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=2), LEASES), st.builds(Delete, KEYS), st.builds(DeletePrefix, PREFIXES)
)
STEPS = st.one_of(
    st.builds(
        Transaction,
        st.lists(COMPARES, max_size=2).map(tuple),
        st.lists(OPERATIONS, max_size=3).map(tuple),
        st.lists(OPERATIONS, max_size=2).map(tuple),
    ),
    st.sampled_from(["revoke 1", "revoke 2"]),
)


class Model:
    """Revisions count from the one that the store had at first, so that they are the same for all engines."""

    def __init__(self):
        self.revision = 0
        self.entries = {}
        self.leases = {1, 2}
        self.history = []

    def transact(self, transaction):
        check(transaction)
        holds = all(
            getattr(self.entries.get(compare.key), "created" if isinstance(compare, Created) else "modified", 0)
            == compare.revision
            for compare in transaction.compares
        )
        operations = transaction.then if holds else transaction.otherwise
        if any(isinstance(each, Put) and each.lease not in self.leases | {0} for each in operations):
            raise LeaseLostError("no such lease")
        self.change(operations)
        return holds, self.revision

    def change(self, operations):
        revision = self.revision + 1
        changed = {}
        for each in operations:
            if isinstance(each, Put):
                old = self.entries.get(each.key)
                entry = Entry(each.key, each.value, old.created if old else revision, revision, each.lease)
                self.entries[each.key] = changed[each.key] = entry
            else:
                for key in list(self.entries):
                    if key == each.key if isinstance(each, Delete) else key.startswith(each.prefix):
                        del self.entries[key]
                        changed[key] = None
        if changed:
            self.revision = revision
            self.history.append((revision, {Change(key, entry) for key, entry in changed.items()}))

    def revoke(self, lease):
        self.leases.discard(lease)
        self.change([Delete(key) for key, entry in list(self.entries.items()) if entry.lease == lease])

    def snapshot(self):
        return Snapshot(self.revision, tuple(self.entries[key] for key in sorted(self.entries)))


class Translated:
    """A store whose revisions and leases are counted as the model does."""

    def __init__(self, store):
        self.store = store

    async def start(self):
        self.base = (await self.store.get_prefix("")).revision
        self.leases = {0: 0, **{number: (await self.store.grant(600)).id for number in (1, 2)}}
        self.leases[3] = max(self.leases.values()) + 1_000_000
        self.numbers = {lease: number for number, lease in self.leases.items()}

    def outwards(self, transaction):
        def operation(each):
            return Put(each.key, each.value, self.leases[each.lease]) if isinstance(each, Put) else each

        compares = tuple(
            type(compare)(compare.key, compare.revision and compare.revision + self.base)
            for compare in transaction.compares
        )
        return Transaction(
            compares, tuple(map(operation, transaction.then)), tuple(map(operation, transaction.otherwise))
        )

    def entry(self, entry):
        lease = self.numbers[entry.lease]
        return Entry(entry.key, entry.value, entry.created - self.base, entry.modified - self.base, lease)

    async def transact(self, transaction):
        outcome = await self.store.transact(self.outwards(transaction))
        return outcome.succeeded, outcome.revision - self.base

    async def snapshot(self):
        snapshot = await self.store.get_prefix("")
        return Snapshot(snapshot.revision - self.base, tuple(map(self.entry, snapshot.entries)))

    async def history(self, length):
        watch = self.store.watch("", self.base + 1)
        batches = [await anext(watch) for _ in range(length)]
        watch.close()
        return [
            (
                batch.revision - self.base,
                {Change(change.key, change.entry and self.entry(change.entry)) for change in batch.changes},
            )
            for batch in batches
        ]


async def result_of(action):
    try:
        return await action
    except (ValueError, LeaseLostError) as error:
        return ValueError if isinstance(error, ValueError) else LeaseLostError


@pytest.mark.parametrize("name", ["memory", "embedded"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=12))
def test_an_engine_does_what_the_model_does(name, request, steps):
    open_engine = request.getfixturevalue(f"{name}_engine")

    async def story():
        async with asyncio.timeout(120), open_engine() as engine:
            model, store = Model(), Translated(engine.client())
            await store.start()

            async def model_transact(transaction):
                return model.transact(transaction)

            for step in steps:
                if isinstance(step, str):
                    lease = int(step.split()[1])
                    model.revoke(lease)
                    await store.store.revoke(store.leases[lease])
                else:
                    assert await result_of(store.transact(step)) == await result_of(model_transact(step))
                assert await store.snapshot() == model.snapshot()
            assert await store.history(len(model.history)) == model.history

    asyncio.run(story())
