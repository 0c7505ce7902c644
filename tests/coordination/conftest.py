"""The engines that have to behave the same, and how a test gets one.

To add an engine: a fixture `<name>_engine` that gives an *opener*, and its name in `ENGINES`. An opener is called
without arguments and gives an asynchronous context manager, whose value is an `Engine` with an empty store.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from etcd_cluster import EtcdCluster

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.server import EmbeddedServer

ENGINES = ["memory", "embedded", pytest.param("etcd", marks=pytest.mark.etcd)]
"""A name, or a `pytest.param` with a name and marks."""

STORY_TIMEOUT_S = 120


class Engine:
    """An empty store, and clients of it.

    Args:
        make_client: makes a store that has not been used.
        compact: a coroutine function that makes the store forget all changes so far.
        ttl_s: the shortest lease that is worth asking for.
    """

    def __init__(self, make_client, compact, ttl_s):
        self._make_client = make_client
        self.compact = compact
        self.ttl_s = ttl_s
        self._clients = []

    def client(self):
        """One more client. It is closed with the engine."""
        client = self._make_client()
        self._clients.append(client)
        return client

    async def close(self):
        for client in self._clients:
            await client.close()


@pytest.fixture(params=ENGINES)
def open_engine(request):
    return request.getfixturevalue(f"{request.param}_engine")


@pytest.fixture
def meet(open_engine):
    """Run a story: a coroutine function that is given an engine."""

    def run(story):
        async def tell():
            async with asyncio.timeout(STORY_TIMEOUT_S), open_engine() as engine:
                await story(engine)

        asyncio.run(tell())

    return run


@pytest.fixture
def memory_engine():
    @asynccontextmanager
    async def opened():
        keyspace = KeySpace()
        engine = Engine(lambda: MemoryStore(keyspace), _compaction_of(keyspace), 0.3)
        try:
            yield engine
        finally:
            await engine.close()

    return opened


@pytest.fixture
def embedded_engine():
    @asynccontextmanager
    async def opened():
        server = EmbeddedServer(token=b"secret")
        await server.start("127.0.0.1", 0)

        def make_client():
            # The machine may be busy; what happens when an answer is late has tests of its own.
            return EmbeddedStore(*server.address, token=b"secret", answer_timeout_s=60, connect_timeout_s=60)

        engine = Engine(make_client, _compaction_of(server.keyspace), 0.3)
        try:
            yield engine
        finally:
            await engine.close()
            await server.close()

    return opened


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """One member that the tests of a module share; each has a prefix of its own."""
    with EtcdCluster(1, tmp_path_factory.mktemp("etcd")) as cluster:
        cluster.prefixes = (f"/test/{number}/" for number in itertools.count())
        yield cluster


@pytest.fixture
def etcd_engine(etcd):
    @asynccontextmanager
    async def opened():
        prefix = next(etcd.prefixes)

        async def compact():
            async with EtcdStore(etcd.endpoints) as store:
                revision = (await store.get_prefix("")).revision
            await asyncio.to_thread(etcd.compact, revision)

        engine = Engine(lambda: EtcdStore(etcd.endpoints, prefix=prefix, answer_timeout_s=60), compact, 2.0)
        try:
            yield engine
        finally:
            await engine.close()

    return opened


def _compaction_of(keyspace):
    async def compact():
        keyspace.compact()

    return compact
