"""The client's end of one connection, with a server that says what a test wants. Stores have tests of their own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.coordination.client_connection import (
    TEXT_SHOWN_CHARS,
    ClientConnection,
    EmbeddedWatch,
    _next_channel,
    failure,
)
from holdfast.coordination.errors import (
    CompactedError,
    LeaseLostError,
    StoreRefusedError,
    StoreReplacedError,
    StoreUnavailableError,
)
from holdfast.coordination.handshake import VERSION, Challenge, Greeting, Proved, make_nonce, prove
from holdfast.coordination.model import STORE_ID_BYTES, Change, Changes, Entry
from holdfast.coordination.tls_session import NO_BINDING
from holdfast.coordination.wire import (
    CHANNEL_MAX,
    FRAME_MAX_BYTES,
    HEADER,
    THE_CONNECTION,
    UNPROVEN_FRAME_MAX_BYTES,
    Changed,
    Failed,
    Found,
    Get,
    GetPrefix,
    Reason,
    Unwatch,
    WatchFrom,
    Watching,
    decode_proof,
    decode_request,
    encode,
    frame,
)

LONG_S = 120.0
TOKEN = b"secret"
STORE = b"s" * STORE_ID_BYTES
CHANGES = Changes(7, (Change("key"),))


class Server:
    """The other end of one connection."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    def send(self, channel, message):
        self._writer.write(frame(channel, encode(message)))

    def send_bytes(self, data):
        self._writer.write(data)

    async def _frame(self):
        length, channel = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        return channel, await self._reader.readexactly(length)

    async def receive(self):
        channel, body = await self._frame()
        return channel, decode_request(body)

    async def meet(self, token=TOKEN, store=STORE):
        """Greet the client, and answer its proof."""
        greeting = Greeting(VERSION, make_nonce(), store)
        self.send(THE_CONNECTION, greeting)
        proof = decode_proof((await self._frame())[1])
        challenge = Challenge(greeting.nonce, proof.nonce, store, NO_BINDING)
        assert proof.mac == prove(TOKEN, "client", challenge)
        self.send(THE_CONNECTION, Proved(prove(token, "server", challenge)))

    async def rest(self):
        """What still comes until the client ends the connection."""
        try:
            return await self._reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def connected(**arguments):
    """A connection, and the server at its other end."""
    came = asyncio.Queue()
    listening = await asyncio.start_server(lambda *ends: came.put_nowait(ends), "127.0.0.1", 0)
    arguments = {"answer_timeout_s": 60.0, **arguments}
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: ClientConnection("here:1", TOKEN, **arguments), *listening.sockets[0].getsockname()
    )
    reader, writer = await came.get()
    try:
        yield connection, Server(reader, writer)
    finally:
        connection.close()
        await connection.ended
        writer.transport.abort()
        listening.close()
        await listening.wait_closed()


@asynccontextmanager
async def met(**arguments):
    """A connection whose two ends have proved that they know the token."""
    async with connected(**arguments) as (connection, server):
        await server.meet()
        await connection.proven
        yield connection, server


def run(story):
    async def tell():
        async with asyncio.timeout(LONG_S):
            await story()

    asyncio.run(tell())


# The proof


def test_both_ends_prove_that_they_know_the_token_and_the_store_is_known_then():
    async def story():
        async with connected() as (connection, server):
            assert (connection.is_made, connection.store, connection.proven.done()) == (True, b"", False)
            await server.meet()
            await connection.proven
            assert connection.store == STORE
            assert connection.local_address() == "127.0.0.1"

    run(story)


@pytest.mark.parametrize(
    ("meeting", "known", "error", "words"),
    [
        ({"token": b"other"}, b"", StoreRefusedError, "use the same token_file"),
        ({"store": b"t" * STORE_ID_BYTES}, STORE, StoreReplacedError, "was replaced"),
        ({"token": b"other", "store": b"t" * STORE_ID_BYTES}, STORE, StoreRefusedError, "use the same token_file"),
    ],
    ids=["token", "store", "both"],
)
def test_a_server_without_the_token_or_with_another_store_is_useless(meeting, known, error, words):
    async def story():
        async with connected(known_store=known) as (connection, server):
            await server.meet(**meeting)
            with pytest.raises(error, match=words):
                await connection.proven
            assert await server.rest() == b""
            assert connection.store == known

    run(story)


def test_the_same_store_is_used_again():
    async def story():
        async with connected(known_store=STORE) as (connection, server):
            await server.meet()
            await connection.proven

    run(story)


def refuse():
    return "another user serves it"


def cannot_say():
    raise OSError("no such socket")


@pytest.mark.parametrize(
    ("why_not", "error", "words"),
    [
        (refuse, StoreRefusedError, "is not for this node: another user serves it"),
        (cannot_say, StoreUnavailableError, "cannot be identified: no such socket"),
    ],
)
def test_a_server_that_must_not_be_answered_gets_no_proof(why_not, error, words):
    async def story():
        async with connected(why_not=why_not) as (connection, server):
            server.send(THE_CONNECTION, Greeting(VERSION, make_nonce(), STORE))
            with pytest.raises(error, match=words):
                await connection.proven
            assert await server.rest() == b""

    run(story)


def test_only_a_server_that_has_proved_itself_may_send_much():
    async def story():
        async with connected() as (connection, server):
            server.send_bytes(HEADER.pack(UNPROVEN_FRAME_MAX_BYTES + 1, THE_CONNECTION))
            with pytest.raises(StoreUnavailableError, match="does not speak holdfast's protocol: a frame of"):
                await connection.proven
        async with met() as (connection, server):
            answer = connection.ask(Get("key"))
            channel, _ = await server.receive()
            large = Found(Entry("key", bytes(2 * UNPROVEN_FRAME_MAX_BYTES), 1, 1))
            server.send(channel, large)
            assert await answer == large

    run(story)


# Requests


def test_answers_find_their_requests_in_whatever_order_they_come():
    async def story():
        async with met() as (connection, server):
            answers = [connection.ask(Get(key)) for key in ("a", "b", "c")]
            asked = [await server.receive() for _ in answers]
            assert [request.key for _, request in asked] == ["a", "b", "c"]
            for channel, request in reversed(asked):
                server.send(channel, Found(Entry(request.key, b"", 1, 1)))
            assert [answer.entry.key for answer in await asyncio.gather(*answers)] == ["a", "b", "c"]

    run(story)


def test_an_answer_that_nobody_waits_for_is_passed_over():
    async def story():
        async with met() as (connection, server):
            given_up, answer = connection.ask(Get("a")), connection.ask(Get("b"))
            given_up.cancel()
            channels = [(await server.receive())[0] for _ in range(2)]
            for channel in (99, *channels):
                server.send(channel, Found(None))
            assert await answer == Found(None)
            assert connection.is_usable

    run(story)


def test_a_request_that_is_too_long_is_rejected_and_the_connection_stays():
    async def story():
        async with met() as (connection, server):
            with pytest.raises(ValueError, match=f"more than {FRAME_MAX_BYTES}"):
                connection.ask(GetPrefix("x" * FRAME_MAX_BYTES))
            answer = connection.ask(Get("a"))
            server.send((await server.receive())[0], Found(None))
            assert await answer == Found(None)

    run(story)


def test_one_answer_that_does_not_come_fails_all_that_waits():
    async def story():
        async with met(answer_timeout_s=0.3) as (connection, server):
            watch = EmbeddedWatch()
            answered = connection.ask(Get("a"))
            server.send((await server.receive())[0], Found(None))
            await answered
            await asyncio.sleep(0.1)  # so that the next deadline is later than the one that the timer was set for
            connection.open_watch(watch, "", 1)
            for waiting in (connection.ask(Get("b")), anext(watch)):
                with pytest.raises(StoreUnavailableError, match=r"at here:1 does not answer \(0\.3 s\)"):
                    await waiting
            assert not connection.is_usable
            with pytest.raises(StoreUnavailableError, match="does not answer"):
                connection.ask(Get("c"))

    run(story)


@pytest.mark.parametrize(
    ("parting", "error", "words"),
    [
        (Failed(Reason.REFUSED, "you\x1b are nobody"), StoreRefusedError, r"refuses this node: you\\x1b are nobody"),
        (Failed(Reason.REFUSED, "the token is not ours"), StoreRefusedError, "use the same token_file"),
        (Failed(Reason.PROTOCOL, "a frame too many"), StoreUnavailableError, "ended the connection: a frame too many"),
        (Found(None), StoreUnavailableError, "does not speak holdfast's protocol: an answer to no request"),
    ],
)
def test_the_reason_with_which_a_server_ends_a_connection_is_that_of_all_requests(parting, error, words):
    async def story():
        async with met() as (connection, server):
            answer = connection.ask(Get("a"))
            server.send(THE_CONNECTION, parting)
            with pytest.raises(error, match=words):
                await answer
            with pytest.raises(error, match=words):
                connection.ask(Get("b"))

    run(story)


# Watches


def test_a_watch_gets_the_changes_of_its_channel_until_it_is_closed():
    async def story():
        async with met() as (connection, server):
            first, second = EmbeddedWatch(), EmbeddedWatch()
            connection.open_watch(first, "a/", 5)
            connection.open_watch(second, "b/", 6)
            (channel, request), (other, _) = await server.receive(), await server.receive()
            assert request == WatchFrom("a/", 5)
            server.send(channel, Changed(CHANGES))
            for each in (channel, other):
                server.send(each, Watching())
            assert await anext(first) == CHANGES
            first.close()
            assert await server.receive() == (channel, Unwatch())
            server.send(channel, Changed(CHANGES))
            server.send(other, Changed(CHANGES))
            assert await anext(second) == CHANGES
            assert [changes async for changes in first] == []

    run(story)


def test_a_watch_that_is_refused_fails_alone():
    async def story():
        async with met() as (connection, server):
            watch = EmbeddedWatch()
            connection.open_watch(watch, "", 1)
            server.send((await server.receive())[0], Failed(Reason.COMPACTED, "forgotten"))
            with pytest.raises(CompactedError, match="forgotten"):
                await anext(watch)
            assert connection.is_usable

    run(story)


def test_changes_that_came_before_the_connection_broke_are_read_first():
    async def story():
        async with met() as (connection, server):
            watch = EmbeddedWatch()
            connection.open_watch(watch, "", 1)
            channel, _ = await server.receive()
            server.send(channel, Changed(CHANGES))
            server.send(THE_CONNECTION, Failed(Reason.PROTOCOL, "over"))
            await connection.ended
            assert await anext(watch) == CHANGES
            with pytest.raises(StoreUnavailableError, match="over"):
                await anext(watch)

    run(story)


def test_a_connection_that_is_closed_ends_its_watches_and_fails_its_requests():
    async def story():
        async with met() as (connection, _):
            watch = EmbeddedWatch()
            connection.open_watch(watch, "", 1)
            answer = connection.ask(Get("a"))
            connection.close()
            await connection.ended
            with pytest.raises(StoreUnavailableError, match="the store was closed"):
                await answer
            assert [changes async for changes in watch] == []
            with pytest.raises(StoreUnavailableError, match="the store was closed"):
                connection.open_watch(EmbeddedWatch(), "", 1)

    run(story)


# Numbers and errors


def test_channels_are_used_again_only_when_they_are_free():
    assert _next_channel(THE_CONNECTION) == 1
    assert _next_channel(1, {2}, {3: "watch"}) == 4
    assert _next_channel(CHANNEL_MAX, {1}) == 2


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (Reason.VALUE, ValueError),
        (Reason.LEASE_LOST, LeaseLostError),
        (Reason.COMPACTED, CompactedError),
        (Reason.PROTOCOL, StoreUnavailableError),
    ],
)
def test_a_failed_request_raises_what_its_reason_means(reason, error):
    raised = failure(Failed(reason, "no\x1b" + "x" * 9_999))
    assert type(raised) is error
    assert str(raised).isprintable()
    assert len(str(raised)) <= TEXT_SHOWN_CHARS + len(r"\x1b")
