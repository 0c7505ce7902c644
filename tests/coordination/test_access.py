"""The records with which a process opens a store: they travel, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest
from embedded_server import TOKEN
from msgspec.json import Decoder, Encoder

from holdfast.coordination.access import Access, EmbeddedAccess, EtcdAccess
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.server import EmbeddedServer

EXAMPLES = [
    EmbeddedAccess("::1", 29400, b"\0\xff token", ("/ca", "/cert", "/key"), is_local=False, users=None),
    EtcdAccess((("a", 1), ("b", 2)), "user", "password", "/ca", None, None, "/holdfast/"),
]


@pytest.mark.parametrize("access", EXAMPLES)
def test_a_record_is_the_same_in_another_process(access):
    assert Decoder(Access).decode(Encoder().encode(access)) == access


def test_every_engine_has_an_example():
    assert {type(access) for access in EXAMPLES} == set(get_args(Access))


def test_a_store_that_an_agent_serves_is_opened():
    async def story():
        server = EmbeddedServer(token=TOKEN)
        await server.start("127.0.0.1", 0)
        try:
            async with EmbeddedAccess(*server.address, TOKEN).open(answer_timeout_s=60.0) as store:
                assert await store.get("x") is None
        finally:
            await server.close()

    asyncio.run(story())


def test_a_cluster_is_opened_without_a_word_to_it():
    async def story():
        async with EtcdAccess((("127.0.0.1", 1),), None, None, None, None, None, "/holdfast/").open(1.0) as store:
            assert isinstance(store, EtcdStore)

    asyncio.run(story())
