"""What engines share. How they must behave is in test_conformance_of_*.py."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.queued_watch import QueuedWatch
from holdfast.coordination.store import CoordinationStore, Watch

METHODS = {"close", "get", "get_prefix", "grant", "keep_alive", "revoke", "transact", "watch"}


def test_an_engine_has_all_methods_or_cannot_be_made():
    assert CoordinationStore.__abstractmethods__ == METHODS
    for missing in METHODS:
        rest = {name: lambda *_: None for name in METHODS - {missing}}
        with pytest.raises(TypeError, match=missing):
            type("Engine", (CoordinationStore,), rest)()


@pytest.mark.parametrize("engine", [MemoryStore, EmbeddedStore, EtcdStore])
def test_our_engines_are_stores(engine):
    assert issubclass(engine, CoordinationStore)
    assert not engine.__abstractmethods__


def test_a_store_is_closed_when_its_block_ends_also_by_an_error():
    async def story():
        store = MemoryStore(KeySpace())

        async def fail():
            async with store as entered:
                assert entered is store
                assert store.local_address() is None
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        with pytest.raises(StoreUnavailableError):
            await store.get("key")

    asyncio.run(story())


def test_a_watch_is_its_own_iterator():
    async def story():
        watch = QueuedWatch()
        assert isinstance(watch, Watch)
        assert aiter(watch) is watch
        watch.close()
        assert [changes async for changes in watch] == []

    asyncio.run(story())
