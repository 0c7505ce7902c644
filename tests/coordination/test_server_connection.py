"""Clients of every kind, one connection each: what they get, and that the others do not notice."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from raw_peer import RawPeer

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.handshake import VERSION
from holdfast.coordination.model import Entry, Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.server_connection import OUTBOX_MAX_BYTES, Common
from holdfast.coordination.wire import (
    FRAME_MAX_BYTES,
    HEADER,
    THE_CONNECTION,
    UNPROVEN_FRAME_MAX_BYTES,
    Changed,
    Failed,
    Found,
    Get,
    GetPrefix,
    Grant,
    Listed,
    Reason,
    Transact,
    Transacted,
    Unwatch,
    WatchFrom,
    Watching,
    encode,
    frame,
)

TOKEN = b"secret"


def put(key, value):
    return Transaction((), (Put(key, value),))


@asynccontextmanager
async def serving():
    """A server, and an honest client that is served before and after."""
    server = EmbeddedServer(token=TOKEN)
    await server.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(120), EmbeddedStore(*server.address, token=TOKEN, answer_timeout_s=60) as honest:
            await honest.transact(put("honest", b"before"))
            yield server, honest
            await honest.transact(put("honest", b"after"))
            assert (await honest.get("honest")).value == b"after"
    finally:
        await server.close()


def run(story):
    async def tell():
        async with serving() as (server, honest):
            await story(server, honest)

    asyncio.run(tell())


# Before the proof


def test_a_client_that_proves_itself_is_served():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            assert server.connections == 2
            assert isinstance(await peer.ask(1, Transact(put("key", b"value"))), Transacted)
            assert await peer.ask(2, Get("key")) == Found(Entry("key", b"value", 3, 3))

    run(story)


@pytest.mark.parametrize("token", [b"", b"other", TOKEN + b"s"])
def test_a_client_with_another_token_is_told_so_and_let_go(token):
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            peer.send(THE_CONNECTION, await peer.make_proof(token))
            peer.send(1, Transact(put("key", b"value")))
            assert await peer.parting() == Failed(Reason.REFUSED, "wrong token")
        assert await honest.get("key") is None
        assert server.connections == 1

    run(story)


def test_a_proof_cannot_be_used_again():
    async def story(server, honest):
        async with RawPeer(server.address) as first, RawPeer(server.address) as second:
            proof = await first.make_proof(TOKEN)
            await second.greeting()
            second.send(THE_CONNECTION, proof)
            assert (await second.parting()).reason is Reason.REFUSED

    run(story)


def test_a_client_of_another_version_is_told_so_and_let_go():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            peer.send(THE_CONNECTION, await peer.make_proof(TOKEN, version=VERSION + 1))
            parting = await peer.parting()
            assert parting.reason is Reason.REFUSED
            assert f"version {VERSION} of the protocol, not {VERSION + 1}" in parting.text

    run(story)


def test_nothing_is_done_for_a_client_without_proof():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.greeting()
            peer.send(1, Transact(put("key", b"value")))
            assert (await peer.parting()).reason is Reason.PROTOCOL
        assert await honest.get("key") is None

    run(story)


def test_a_client_without_proof_cannot_make_the_server_hold_much():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.greeting()
            peer.send_bytes(HEADER.pack(UNPROVEN_FRAME_MAX_BYTES + 1, 0))
            parting = await peer.parting()
            assert parting.reason is Reason.PROTOCOL
            assert f"more than {UNPROVEN_FRAME_MAX_BYTES}" in parting.text

    run(story)


def test_a_client_may_come_byte_by_byte():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            proof = frame(THE_CONNECTION, encode(await peer.make_proof(TOKEN)))
            for byte in proof + frame(1, encode(Get("honest"))):
                peer.send_bytes(bytes([byte]))
                await honest.get("honest")  # the other is served between any two of them
            await peer.receive_frame()
            assert (await peer.receive())[1].entry.value == b"before"

    run(story)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_let_go(seed):
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            peer.send_bytes(random.Random(seed).randbytes(100_000))
            await peer.ended()
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            peer.send_bytes(frame(1, random.Random(seed).randbytes(1000)))
            await peer.ended()

    run(story)


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_a_client_of_another_protocol_is_let_go(words):
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            peer.send_bytes(words)
            await peer.ended()

    run(story)


# Requests


@pytest.mark.parametrize(
    "data",
    [
        frame(1, b"\xc1"),
        frame(1, b""),
        frame(1, encode(["unheard-of"])),
        frame(1, encode(["get", None])),
        HEADER.pack(FRAME_MAX_BYTES + 1, 1),
        HEADER.pack(0xFFFFFFFF, 1),
    ],
    ids=["no msgpack", "empty", "unknown", "wrong type", "too long", "far too long"],
)
def test_a_client_that_breaks_the_protocol_is_told_so_and_let_go(data):
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            peer.send_bytes(data)
            peer.send_bytes(frame(2, encode(Get("honest"))) * 1000)  # what comes after it is of no interest
            parting = await peer.parting()
            assert parting.reason is Reason.PROTOCOL
            assert "not the protocol" in parting.text
            assert "\n" not in parting.text

    run(story)


def test_requests_that_come_at_once_are_answered_in_order():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            peer.send_bytes(b"".join(frame(n, encode(Transact(put("key", b"%d" % n)))) for n in range(1, 501)))
            answers = [await peer.receive() for _ in range(500)]
            assert [channel for channel, _ in answers] == list(range(1, 501))
            assert [answer.outcome.revision for _, answer in answers] == list(range(3, 503))

    run(story)


def test_bad_values_are_answered_and_the_connection_stays():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            for request in (
                Transact(put("", b"")),
                Transact(Transaction((), (Put("a", b""), Put("a", b"")))),
                Grant(-1.0),
                Grant(float("nan")),
                Grant(1e300),
            ):
                answer = await peer.ask(1, request)
                assert isinstance(answer, Failed)
                assert answer.reason is Reason.VALUE
            peer.send(1, Unwatch())  # of nothing
            assert isinstance(await peer.ask(1, WatchFrom("", 100)), Watching)
            assert (await peer.ask(1, WatchFrom("", 100))).reason is Reason.VALUE
            assert isinstance(await peer.ask(2, Get("honest")), Found)

    run(story)


def test_a_watch_that_has_ended_says_no_more():
    async def story(server, honest):
        async with RawPeer(server.address) as peer:
            await peer.prove(TOKEN)
            assert isinstance(await peer.ask(1, WatchFrom("key", 100)), Watching)
            peer.send(1, Unwatch())
            await peer.ask(2, Transact(put("key", b"")))
            await peer.ask(3, Get("key"))

    run(story)


# Slow readers


def test_a_client_that_does_not_read_answers_has_to_wait_for_its_next_ones():
    async def story(server, honest):
        value = bytes(500_000)
        await honest.transact(put("long", value))
        async with RawPeer(server.address, receive_buffer_bytes=4096) as peer:
            await peer.prove(TOKEN)
            many = 3 * OUTBOX_MAX_BYTES // len(value)
            for n in range(1, many + 1):
                peer.send(n, GetPrefix("long"))
            for n in range(200):  # all that time the other one is served
                await honest.transact(put("honest", b"%d" % n))
            for n in range(1, many + 1):
                channel, answer = await peer.receive()
                assert channel == n
                assert isinstance(answer, Listed)
                assert answer.snapshot.entries[0].value == value
        await honest.get("long")

    run(story)


def test_a_client_that_does_not_read_changes_is_dropped():
    async def story(server, honest):
        async with RawPeer(server.address, receive_buffer_bytes=4096) as peer, RawPeer(server.address) as reader:
            for watcher in (peer, reader):
                await watcher.prove(TOKEN)
                assert isinstance(await watcher.ask(1, WatchFrom("long", 1)), Watching)
            while server.connections == 3:
                await honest.transact(put("long", bytes(1_000_000)))
                assert isinstance((await reader.receive())[1], Changed)
            assert server.connections == 2

    run(story)


def test_a_message_that_goes_to_many_is_encoded_once():
    encoded = Common()
    message, other = Found(None), Found(Entry("key", b"", 1, 1))
    body = encoded.encode(message)
    assert encoded.encode(message) is body
    assert encoded.encode(other) == encode(other)
    assert encoded.encode(message) == body
