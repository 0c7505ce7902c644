"""The client's end of a connection: first the proof, then numbered requests. A missing answer ends the connection."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial

from holdfast.coordination.errors import (
    CompactedError,
    LeaseLostError,
    StoreRefusedError,
    StoreReplacedError,
    StoreUnavailableError,
)
from holdfast.coordination.handshake import VERSION, Challenge, Greeting, Proof, is_proved, make_nonce, prove
from holdfast.coordination.queued_watch import QueuedWatch
from holdfast.coordination.tls_session import NO_BINDING, TlsSession
from holdfast.coordination.wire import (
    ANSWER_MAX_BYTES,
    CHANNEL_MAX,
    FRAME_MAX_BYTES,
    THE_CONNECTION,
    UNPROVEN_FRAME_MAX_BYTES,
    Changed,
    Failed,
    Frames,
    ProtocolError,
    Reason,
    Unwatch,
    WatchFrom,
    decode_answer,
    decode_greeting,
    decode_proved,
    encode,
    frame,
)
from holdfast.errors.text import headline, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Any, TypeAlias

    from holdfast.coordination.wire import Answer, Request

    ClientTls: TypeAlias = tuple[ssl.SSLContext, str]
    """A context for the client's side, and the server's name."""

TEXT_SHOWN_CHARS = 300
"""How much of the server's error text is shown."""

_ERRORS: dict[Reason, type[Exception]] = {
    Reason.VALUE: ValueError,
    Reason.LEASE_LOST: LeaseLostError,
    Reason.COMPACTED: CompactedError,
}


class ClientConnection(asyncio.Protocol):
    """The client's end of a connection to the embedded server.

    `proven` is done when both sides have proved that they know the token, `ended` when the transport is closed. `store`
    is the identity of the store at the other end, once that is proven.

    Args:
        place: the server's address, for messages.
        token: the token that the server must know, too.
        tls: the TLS context that the connection must use. None for plain text, unless the server speaks TLS: with
            `own_client_context` that is always possible.
        answer_timeout_s: a request without an answer for this long ends the connection. A cut cable sends nothing.
        known_store: the store that this client has used before. Any other store is useless to it.
        why_not: called after the server's greeting. Returns why the client must not answer it; "" if it may. It may
            raise OSError.
    """

    def __init__(
        self,
        place: str,
        token: bytes,
        answer_timeout_s: float,
        known_store: bytes = b"",
        tls: ClientTls | None = None,
        why_not: Callable[[], str] = str,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.proven: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.is_usable = True
        self._loop = loop
        self._place = place
        self._token = token
        self._answer_timeout_s = answer_timeout_s
        self._frames = Frames(UNPROVEN_FRAME_MAX_BYTES)
        self._take: Callable[[int, bytes | bytearray], None] = self._take_greeting
        self.store = known_store
        self._greeting: Greeting | None = None
        self._challenge: Challenge | None = None
        self._transport: asyncio.Transport | None = None
        self._tls = tls
        self._why_not = why_not
        self._tls_session: TlsSession | None = None
        self._waiting: dict[int, tuple[float, asyncio.Future[Answer]]] = {}
        self._watches: dict[int, EmbeddedWatch] = {}
        self._last_channel = THE_CONNECTION
        self._timer: asyncio.TimerHandle | None = None
        self._make_error: Callable[[], Exception] = AssertionError

    @property
    def is_made(self) -> bool:
        """Whether there is a transport, so that `ended` will be done."""
        return self._transport is not None

    def local_address(self) -> str | None:
        if self._transport is None:
            return None
        name = self._transport.get_extra_info("sockname")
        return None if name is None else str(name[0])

    def ask(self, request: Request) -> asyncio.Future[Answer]:
        """Send a request. The future is its answer, which may be `Failed`.

        Raises:
            ValueError: the request is too long.
            StoreUnavailableError: the connection has ended.
        """
        self._last_channel = _next_channel(self._last_channel, self._waiting, self._watches)
        return self._ask(self._last_channel, request)

    def open_watch(self, watch: EmbeddedWatch, prefix: str, from_revision: int) -> None:
        """Deliver changes to a watch until the watch or the connection ends.

        Raises:
            StoreUnavailableError: the connection has ended.
        """
        channel = self._last_channel = _next_channel(self._last_channel, self._waiting, self._watches)
        self._ask(channel, WatchFrom(prefix, from_revision)).add_done_callback(watch.is_answered)
        self._watches[channel] = watch
        watch.is_on(self, channel)

    def end_watch(self, channel: int) -> None:
        if self._watches.pop(channel, None) is not None and self.is_usable:
            self._write(channel, Unwatch())

    def close(self) -> None:
        """End the connection and its watches. Leases keep their remaining time."""
        for watch in list(self._watches.values()):
            watch.close()
        self._end(lambda: StoreUnavailableError("the store was closed"))

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            text = data if self._tls_session is None else self._open_seal(data, self._tls_session)
            if not text:
                return
            self._frames.feed(text)
            while self.is_usable:
                taken = self._frames.take()
                if taken is None:
                    return
                self._take(*taken)
        except ProtocolError as error:
            self._break(f"what answers at {self._place} does not speak holdfast's protocol: {visible(str(error))}")
        except ssl.SSLError as error:
            self._end(partial(_tls_failure, self._place, str(error), is_proven=self.proven.done()))

    def connection_lost(self, error: Exception | None) -> None:
        why = "closed the connection" if error is None else f"is no longer connected: {error}"
        self._break(f"the store at {self._place} {why}")
        if not self.ended.done():
            self.ended.set_result(None)

    # Input

    def _take_greeting(self, _channel: int, body: bytes | bytearray) -> None:
        greeting = decode_greeting(body)
        if isinstance(greeting, Failed):
            self._take_parting(greeting)
        elif greeting.version != VERSION:
            self._refuse(
                f"the store at {self._place} speaks version {greeting.version} of the protocol and this node version "
                f"{VERSION}: install the same holdfast on all nodes"
            )
        else:
            self._answer_greeting(greeting)

    def _answer_greeting(self, greeting: Greeting) -> None:
        if not greeting.is_complete():
            raise ProtocolError("a greeting without the identity of the store")
        if self._frames.has_more():  # plain text must not be mistaken for data that came over TLS
            raise ProtocolError("more than a greeting")
        self._greeting = greeting
        if not self._may_answer():
            return
        if greeting.has_tls:
            self._begin_tls()
        elif self._tls is not None:
            self._refuse(
                f"the store at {self._place} does not speak TLS, which this node requires: give the same "
                "--rdzv-endpoint and the same certificates on all nodes"
            )
        else:
            self._send_proof(greeting, NO_BINDING)

    def _may_answer(self) -> bool:
        try:
            why_not = self._why_not()
        except OSError as error:
            self._break(f"the store at {self._place} cannot be identified: {error}")
            return False
        if why_not:
            self._refuse(f"the store at {self._place} is not for this node: {why_not}")
        return not why_not

    def _begin_tls(self) -> None:
        assert self._transport is not None
        if self._tls is None:
            from holdfast.coordination.tls import own_client_context

            self._tls = (own_client_context(), "")
        context, name = self._tls
        self._tls_session = TlsSession(context, server_hostname=name or None)
        self._tls_session.receive(b"")
        self._transport.write(self._tls_session.to_send())

    def _open_seal(self, data: bytes, session: TlsSession) -> bytes:
        """Decrypt data from the server. Sends the proof as soon as the session is established."""
        assert self._transport is not None
        assert self._greeting is not None
        text = session.receive(data)
        answer = session.to_send()
        if answer:
            self._transport.write(answer)
        if session.is_established and self._challenge is None:
            self._send_proof(self._greeting, session.binding())
        return text

    def _send_proof(self, greeting: Greeting, binding: bytes) -> None:
        self._challenge = Challenge(greeting.nonce, make_nonce(), greeting.store, binding)
        self._take = self._take_proved
        self._write(
            THE_CONNECTION, Proof(VERSION, self._challenge.client_nonce, prove(self._token, "client", self._challenge))
        )

    def _take_proved(self, _channel: int, body: bytes | bytearray) -> None:
        proved = decode_proved(body)
        assert self._challenge is not None
        if isinstance(proved, Failed):
            self._take_parting(proved)
        elif not is_proved(proved.mac, self._token, "server", self._challenge):
            self._refuse(_wrong_token(self._place, has_tls=self._tls_session is not None))
        elif self.store and self.store != self._challenge.store:
            self._end(
                partial(_replaced, self._place)
            )  # only after the proof: a server without the token must not be able to claim this
        else:
            self.store = self._challenge.store
            self._take = self._take_answer
            self._frames.limit_bytes = ANSWER_MAX_BYTES
            if not self.proven.done():
                self.proven.set_result(None)

    def _take_answer(self, channel: int, body: bytes | bytearray) -> None:
        answer = decode_answer(body)
        if isinstance(answer, Changed):
            watch = self._watches.get(channel)
            if watch is not None:
                watch.deliver(answer.changes)
        elif channel == THE_CONNECTION:
            if not isinstance(answer, Failed):
                raise ProtocolError("an answer to no request")
            self._take_parting(answer)
        else:
            _, future = self._waiting.pop(channel, (0.0, None))
            if future is not None and not future.done():
                future.set_result(answer)

    def _take_parting(self, failed: Failed) -> None:
        """Handle the server's reason for ending the connection."""
        text = visible(headline(failed.text, TEXT_SHOWN_CHARS))
        if failed.reason is Reason.REFUSED and "token" in text:
            self._refuse(_wrong_token(self._place, has_tls=self._tls_session is not None))
        elif failed.reason is Reason.REFUSED:
            self._refuse(f"the store at {self._place} refuses this node: {text}")
        else:
            self._break(f"the store at {self._place} ended the connection: {text}")

    # Output

    def _ask(self, channel: int, request: Request) -> asyncio.Future[Answer]:
        if not self.is_usable:
            raise self._make_error()
        self._write(channel, request)
        future: asyncio.Future[Answer] = self._loop.create_future()
        deadline = self._loop.time() + self._answer_timeout_s
        self._waiting[channel] = (deadline, future)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._look_for_the_late)
        return future

    def _write(self, channel: int, message: Request | Proof) -> None:
        assert self._transport is not None
        body = encode(message)
        if len(body) > FRAME_MAX_BYTES:
            raise ValueError(f"a request of {len(body)} bytes, more than {FRAME_MAX_BYTES}")
        data = frame(channel, body)
        self._transport.write(data if self._tls_session is None else self._tls_session.seal(data))

    def _look_for_the_late(self) -> None:
        """End the connection if its oldest request has timed out.

        Requests wait in the order in which they were sent, so the first is the oldest.
        """
        self._timer = None
        for deadline, _ in self._waiting.values():
            if deadline <= self._loop.time():
                self._break(f"the store at {self._place} does not answer ({self._answer_timeout_s:g} s)")
            else:
                self._timer = self._loop.call_at(deadline, self._look_for_the_late)
            return

    # The end

    def _break(self, text: str) -> None:
        self._end(lambda: StoreUnavailableError(text))

    def _refuse(self, text: str) -> None:
        self._end(lambda: StoreRefusedError(text))

    def _end(self, make_error: Callable[[], Exception]) -> None:
        """Fail everything that waits, and close the transport at once."""
        if not self.is_usable:
            return
        self.is_usable = False
        self._make_error = make_error
        if self._timer is not None:
            self._timer.cancel()
        waiting: list[asyncio.Future[Any]] = [self.proven, *(future for _, future in self._waiting.values())]
        for future in waiting:
            if not future.done():
                future.set_exception(make_error())
                future.exception()  # retrieve the exception: the waiter may be gone, and asyncio would warn
        for watch in list(self._watches.values()):
            watch.fail(make_error())
        self._waiting.clear()
        self._watches.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()


class EmbeddedWatch(QueuedWatch):
    """A watch on one connection. It ends with that connection."""

    _connection: ClientConnection | None = None
    _channel = THE_CONNECTION

    def is_on(self, connection: ClientConnection, channel: int) -> None:
        self._connection = connection
        self._channel = channel

    def is_answered(self, answer: asyncio.Future[Answer]) -> None:
        """Fail the watch if the request failed. If the connection breaks, the watch is failed elsewhere."""
        if not answer.cancelled() and answer.exception() is None:
            result = answer.result()
            if isinstance(result, Failed):
                self.fail(failure(result))

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.end_watch(self._channel)


def _next_channel(channel: int, *used: Container[int]) -> int:
    """The next number after `channel` that nothing uses."""
    while True:
        channel = channel % CHANNEL_MAX + 1
        if not any(channel in channels for channels in used):
            return channel


def _replaced(place: str) -> Exception:
    return StoreReplacedError(
        f"the store at {place} was replaced: the agent that served it has ended, and another one serves a new store "
        "there"
    )


def _wrong_token(place: str, *, has_tls: bool) -> str:
    doubt = ". If it is the same, the connection may be intercepted" if has_tls else ""
    return (
        f"this node's token is not that of the job at {place}; use the same token_file (or HOLDFAST_TOKEN) on every "
        f"node{doubt}"
    )


def _tls_failure(place: str, error: str, *, is_proven: bool) -> Exception:
    if is_proven:  # somebody in between has changed the data: they can cut the connection, and no more
        return StoreUnavailableError(f"what comes from the store at {place} cannot be read: {error}")
    return StoreRefusedError(
        f"no TLS connection to the store at {place}: {error}; all nodes need certificates that the others accept"
    )


def failure(failed: Failed) -> Exception:
    """The exception that a failed request raises."""
    text = visible(headline(failed.text, TEXT_SHOWN_CHARS))
    return _ERRORS.get(failed.reason, StoreUnavailableError)(text)
