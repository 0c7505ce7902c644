"""How the embedded engine's client connects, what it says when it cannot, and how it comes back."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
from embedded_server import TOKEN, ServerProcess

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreRefusedError, StoreReplacedError, StoreUnavailableError
from holdfast.coordination.handshake import NONCE_BYTES, PROOF_BYTES, VERSION, Greeting, Proved
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import STORE_ID_BYTES, Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.wire import THE_CONNECTION, Failed, Found, Reason, encode, frame

PUT = Transaction((), (Put("key", b"value"),))


@asynccontextmanager
async def serving(keyspace=None, host="127.0.0.1", port=0, token=TOKEN):
    server = EmbeddedServer(keyspace, token=token)
    await server.start(host, port)
    try:
        async with asyncio.timeout(120):
            yield server
    finally:
        await server.close()


@asynccontextmanager
async def answering(*answers):
    """A server that answers whatever comes, by turns; gives its address and the list of what came."""
    came = []

    async def answer(reader, writer):
        for data in answers:
            writer.write(data)
            piece = await reader.read(1 << 16)
            if not piece:
                break
            came.append(piece)
        else:
            while piece := await reader.read(1 << 16):
                came.append(piece)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            yield server.sockets[0].getsockname(), came
    finally:
        server.close()
        await server.wait_closed()


def client(address, **arguments):
    return EmbeddedStore(*address, **{"token": TOKEN, "connect_timeout_s": 60, "answer_timeout_s": 60, **arguments})


# Connecting


def test_it_connects_when_it_is_first_used():
    async def story():
        async with serving() as server, client(server.address) as store:
            assert store.local_address() is None
            assert server.connections == 0
            await asyncio.gather(*(store.get(str(n)) for n in range(10)))
            assert server.connections == 1
            assert store.local_address() == "127.0.0.1"

    asyncio.run(story())


def test_a_watch_connects_too():
    async def story():
        async with serving() as server, client(server.address) as store, client(server.address) as other:
            watch = store.watch("key", 2)
            waiting = asyncio.ensure_future(anext(watch))
            await other.transact(PUT)
            assert (await waiting).revision == 2
            watch.close()

    asyncio.run(story())


def test_a_name_with_several_addresses_is_tried_address_by_address():
    async def story():
        async with serving() as server, client(("localhost", server.address[1])) as store:
            await store.transact(PUT)

    asyncio.run(story())


def test_it_connects_from_the_address_it_is_told():
    async def story():
        async with serving() as server:
            async with client(server.address, source="127.0.0.9") as store:
                await store.transact(PUT)
                assert store.local_address() == "127.0.0.9"
            async with client(server.address, source="192.0.2.1") as store:
                with pytest.raises(StoreUnavailableError, match=r"cannot be reached from 192\.0\.2\.1: .*assign"):
                    await store.get("key")

    asyncio.run(story())


def test_where_nobody_serves_the_store_is_gone():
    async def story():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and does not listen
            port = taken.getsockname()[1]
            for host in ("127.0.0.1", "localhost"):
                async with client((host, port)) as store:
                    with pytest.raises(StoreUnavailableError, match=f"no store is running at {host}:{port}") as raised:
                        await store.get("key")
                    assert raised.value.is_gone

    asyncio.run(story())


@pytest.mark.parametrize("host", ["a..b", "\0", "x" * 300])
def test_a_host_that_is_none_cannot_be_reached(host):
    async def story():
        async with client((host, 1)) as store:
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await store.get("key")

    asyncio.run(story())


def test_a_server_that_does_not_greet_does_not_answer():
    async def story():
        async with answering(b"") as (address, came):
            async with client(address, connect_timeout_s=0.3) as store:
                with pytest.raises(StoreUnavailableError, match=r"does not answer \(0\.3 s\)") as raised:
                    await store.get("key")
                assert not raised.value.is_gone
            assert came == []

    asyncio.run(story())


# Proofs


def test_another_token_is_refused_and_what_to_do_is_said():
    async def story():
        async with serving() as server, client(server.address, token=b"other") as store:
            for _ in range(2):
                with pytest.raises(StoreRefusedError, match="use the same token_file"):
                    await store.get("key")

    asyncio.run(story())


def test_a_server_that_does_not_know_the_token_is_told_nothing():
    async def story():
        greeting = frame(THE_CONNECTION, encode(Greeting(VERSION, bytes(NONCE_BYTES), bytes(STORE_ID_BYTES))))
        proved = frame(THE_CONNECTION, encode(Proved(bytes(PROOF_BYTES))))
        async with answering(greeting, proved) as (address, came):
            async with client(address) as store:
                with pytest.raises(StoreRefusedError, match="use the same token_file"):
                    await store.transact(PUT)
            assert len(came) == 1  # the proof
            assert b"value" not in came[0]
            assert TOKEN not in came[0]

    asyncio.run(story())


def test_another_version_is_refused_and_what_to_do_is_said():
    async def story():
        greeting = frame(THE_CONNECTION, encode(Greeting(VERSION + 1, bytes(NONCE_BYTES))))
        async with answering(greeting) as (address, came):
            async with client(address) as store:
                with pytest.raises(StoreRefusedError, match="install the same holdfast on all nodes"):
                    await store.get("key")
            assert came == []

    asyncio.run(story())


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 100,
        frame(THE_CONNECTION, b"\xc1"),
        frame(THE_CONNECTION, encode(Found(None))),
        frame(THE_CONNECTION, encode(Greeting(VERSION, b"short", bytes(STORE_ID_BYTES)))),
        frame(THE_CONNECTION, encode(Greeting(VERSION, bytes(NONCE_BYTES), b"short"))),
    ],
    ids=["HTTP", "noise", "no msgpack", "another message", "short nonce", "short identity"],
)
def test_what_is_no_store_is_said_to_be_none(words):
    async def story():
        async with answering(words) as (address, _), client(address) as store:
            with pytest.raises(StoreUnavailableError, match="does not speak holdfast's protocol"):
                await store.get("key")

    asyncio.run(story())


def test_what_the_server_says_at_parting_is_shown_in_one_clean_line():
    async def story():
        parting = Failed(Reason.PROTOCOL, "too\x1b[31m bad\nreally" + "x" * 500)
        async with answering(frame(THE_CONNECTION, encode(parting))) as (address, _), client(address) as store:
            with pytest.raises(StoreUnavailableError) as raised:
                await store.get("key")
            assert str(raised.value).endswith(r"ended the connection: too\x1b[31m bad")

    asyncio.run(story())


# Loss


def test_it_comes_back_when_the_server_does():
    async def story():
        keyspace = KeySpace()
        async with serving(keyspace) as server, client(server.address) as store:
            revision = (await store.transact(PUT)).revision
            watch = store.watch("", revision + 1)
            waiting = asyncio.ensure_future(anext(watch))
            await store.get("key")
            await server.close()
            with pytest.raises(StoreUnavailableError, match="closed the connection"):
                await waiting
            with pytest.raises(StopAsyncIteration):
                await anext(watch)
            with pytest.raises(StoreUnavailableError) as raised:
                await store.get("key")
            assert raised.value.is_gone
            async with serving(keyspace, *server.address) as second:
                assert (await store.get("key")).value == b"value"
                assert second.connections == 1

    asyncio.run(story())


def test_a_store_that_replaced_ours_is_never_used():
    """The agent that served it was restarted behind the same address: all of what we know is of the old store."""

    async def story():
        async with serving() as server, client(server.address) as store:
            lease = await store.grant(3600)
            revision = (await store.transact(PUT)).revision
            watch = store.watch("", revision + 1)
            await server.close()
            with pytest.raises(StoreUnavailableError):
                await anext(watch)
            replacement = KeySpace()
            async with serving(replacement, *server.address) as second:
                for ask in (
                    lambda: store.get("key"),
                    lambda: store.keep_alive(lease.id),
                    lambda: store.transact(PUT),
                    lambda: store.grant(3600),
                    lambda: store.revoke(lease.id),
                    lambda: anext(store.watch("", revision + 1)),
                ):
                    with pytest.raises(StoreReplacedError, match="was replaced: the agent that served it") as raised:
                        await ask()
                    assert raised.value.is_gone
                    assert raised.value.is_proven
                assert replacement.revision == 1
                assert replacement.next_expiry() is None
                async with client(second.address) as newcomer:  # which never knew another
                    assert await newcomer.get("key") is None

    asyncio.run(story())


def test_only_a_server_that_knows_the_token_can_say_that_the_store_was_replaced():
    async def story():
        async with serving() as server, client(server.address) as store:
            watch = store.watch("", (await store.transact(PUT)).revision + 1)
            await server.close()
            with pytest.raises(StoreUnavailableError):
                await anext(watch)
            async with serving(None, *server.address, token=b"other"):
                with pytest.raises(StoreUnavailableError, match="token"):
                    await store.get("key")

    asyncio.run(story())


def test_a_server_that_is_killed_is_gone():
    async def story(server):
        async with client(server.address) as store:
            await store.transact(PUT)
            server.kill()
            with pytest.raises(StoreUnavailableError):
                await store.get("key")
            with pytest.raises(StoreUnavailableError) as raised:
                await store.get("key")
            assert raised.value.is_gone

    with ServerProcess() as server:
        asyncio.run(story(server))


def test_an_answer_that_does_not_come_is_the_end_of_the_connection():
    async def story(server):
        async with client(server.address, answer_timeout_s=0.5) as store:
            revision = (await store.transact(PUT)).revision
            watch = store.watch("", revision + 1)
            await store.get("key")
            server.hold()
            results = await asyncio.gather(store.get("key"), store.get("a"), anext(watch), return_exceptions=True)
            for result in results:
                assert isinstance(result, StoreUnavailableError)
                assert "does not answer (0.5 s)" in str(result)
                assert not result.is_gone
            server.let_go()
        async with client(server.address) as store:
            assert (await store.get("key")).value == b"value"

    with ServerProcess() as server:
        asyncio.run(story(server))


def test_the_leases_of_a_client_that_gave_up_on_a_slow_server_keep_their_time():
    async def story(server):
        async with client(server.address, answer_timeout_s=0.5) as store, client(server.address) as other:
            lease = await store.grant(3600)
            await store.transact(Transaction((), (Put("kept", b"", lease.id),)))
            marked = await other.grant(3)
            revision = (await other.transact(Transaction((), (Put("marked", b"", marked.id),)))).revision
            server.hold()
            with pytest.raises(StoreUnavailableError):
                await store.get("key")
            server.let_go()
            watch = other.watch("", revision + 1)
            assert [change.key for change in (await anext(watch)).changes] == ["marked"]
            watch.close()
            assert await other.get("kept") is not None

    with ServerProcess() as server:
        asyncio.run(story(server))


def test_a_connection_that_breaks_under_a_request_is_not_used_again():
    async def story():
        async with serving() as server, client(server.address) as store:
            await store.transact(PUT)
            connection = await store.connected()
            connection.close()
            assert (await store.get("key")).value == b"value"
            with pytest.raises(StoreUnavailableError):
                connection.ask(Found(None))

    asyncio.run(story())


# Callers


def test_a_caller_that_is_cancelled_takes_nothing_from_the_others():
    async def story():
        async with serving() as server, client(server.address) as store:
            first, second = (asyncio.ensure_future(store.transact(PUT)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).succeeded
            third, fourth = (asyncio.ensure_future(store.get("key")) for _ in range(2))
            await asyncio.sleep(0)
            third.cancel()
            assert (await fourth).value == b"value"
            assert third.cancelled() or third.cancelling()
            assert server.connections == 1

    asyncio.run(story())


def test_a_client_can_be_closed_while_it_connects():
    async def story():
        async with answering(b"") as (address, _):
            store = client(address)
            waiting = [asyncio.ensure_future(store.get("key")), asyncio.ensure_future(anext(store.watch("", 1)))]
            await asyncio.sleep(0)
            await store.close()
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(result, StoreUnavailableError)

    asyncio.run(story())


def test_a_client_that_nobody_waits_for_any_more_ends_quietly():
    async def story():
        async with answering(b"") as (address, _), client(address) as store:
            waiting = asyncio.ensure_future(store.get("key"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])

    asyncio.run(story())


def test_a_request_that_is_too_long_is_rejected():
    async def story():
        async with serving() as server, client(server.address) as store:
            with pytest.raises(ValueError, match="a request of 5000"):
                await store.get_prefix("x" * 5_000_000)
            assert (await store.get_prefix("")).entries == ()

    asyncio.run(story())


def test_many_long_entries_can_be_read_at_once():
    async def story():
        async with serving() as server, client(server.address) as store:
            for n in range(20):
                await store.transact(Transaction((), (Put(str(n), bytes([n]) * 1_000_000),)))
            assert sum(len(entry.value) for entry in (await store.get_prefix("")).entries) == 20_000_000

    asyncio.run(story())
