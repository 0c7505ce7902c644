"""The server's end of a connection: first the proof, then requests. Output is bounded, and input waits for output."""

from __future__ import annotations

import asyncio

from holdfast.coordination.backlog import PIECE_BYTES, Backlog
from holdfast.coordination.handshake import VERSION, Challenge, Greeting, Proved, is_proved, make_nonce, prove
from holdfast.coordination.held import MESSAGE_OVERHEAD_BYTES, Held
from holdfast.coordination.service import Session
from holdfast.coordination.tls_session import NO_BINDING
from holdfast.coordination.wire import (
    ANSWER_MAX_BYTES,
    FRAME_MAX_BYTES,
    THE_CONNECTION,
    UNPROVEN_FRAME_MAX_BYTES,
    Changed,
    Failed,
    Frames,
    ProtocolError,
    Reason,
    decode_proof,
    decode_request,
    encode,
    frame,
)
from holdfast.errors.text import headline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from holdfast.coordination.service import Service
    from holdfast.coordination.tls import ServerTls
    from holdfast.coordination.tls_session import TlsSession
    from holdfast.coordination.wire import Answer

    class Listener(Protocol):
        """The observer of a connection.

        The connection reports when it has `begun` TLS and when it needs a turn to continue the handshake, when the
        client has proved itself or was refused, and when the connection has ended.
        """

        def begun(self, connection: ServerConnection) -> None: ...
        def take_turn(self, connection: ServerConnection, data: bytes) -> None: ...
        def has_room(self) -> bool: ...
        def proven(self, connection: ServerConnection) -> None: ...
        def refused(self, source: str, why: str) -> None: ...
        def ended(self, connection: ServerConnection) -> None: ...


UNPROVEN_MAX_BYTES = 64 << 10
"""How much a client may send before it has proved itself, including its certificates, if it has any."""

UNPROVEN_READ_MAX_BYTES = 4 << 10
"""How much is read at once from an unproven client. It may have to wait for its turn, and so would the data; the rest
stays in the kernel."""

READ_MAX_BYTES = 256 << 10
"""How much is read at once from a proven client."""

OUTBOX_MAX_BYTES = 16 << 20
"""How much may wait for a client that does not read, before the client is dropped."""

OUTBOX_FULL_BYTES = 1 << 20
"""How much may wait for a client before its next request has to wait, too."""

TEXT_MAX_CHARS = 200
"""The length limit of the reason for ending a connection. It fits into what a client accepts before the proof."""

LINGER_S = 1.0
"""How long a client has to read why its connection ends."""


class Common:
    """State that all connections of a server share.

    The last encoded message, because many clients may get the same one; the count of held bytes; and the read buffer.
    """

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_MAX_BYTES))
        self.held: Held[ServerConnection] = Held()
        self._message: object = None
        self._body: bytes | None = None

    def encode(self, message: object) -> bytes | None:
        """Encode a message. None if it is longer than an answer may be."""
        if message is not self._message:
            body = encode(message)
            self._body = body if len(body) <= ANSWER_MAX_BYTES else None
            self._message = message
        return self._body


class ServerConnection(asyncio.BufferedProtocol):
    """The server's end of a connection. `source` is the source that the client's address counts for."""

    def __init__(
        self,
        service: Service,
        token: bytes,
        tls: ServerTls | None,
        common: Common,
        source: str,
        listener: Listener,
    ) -> None:
        self.is_proven = False
        self._service = service
        self._token = token
        self._tls = tls
        self._common = common
        self.source = source
        self._listener = listener
        self._nonce = make_nonce()
        self._store = service.keyspace.id
        self._session: Session | None = None
        self._tls_session: TlsSession | None = None
        self._received_bytes = 0
        self._frames = Frames(UNPROVEN_FRAME_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._backlog: Backlog[ServerConnection] = Backlog(common.held)
        self._can_write = True
        self._is_held = False
        self._is_over = False
        self._linger: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the first message in TLS was served. That step costs the most."""
        return self._tls_session is not None

    def drop(self) -> None:
        """Abort the connection for a reason of the server's own."""
        self._is_over = True
        self._backlog.let_go(self)
        if self._transport is not None:
            self._transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_over:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=0)
        greeting = Greeting(VERSION, self._nonce, self._store, self._tls is not None)
        transport.write(frame(THE_CONNECTION, encode(greeting)))

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._common.buffer if self.is_proven else self._common.buffer[:UNPROVEN_READ_MAX_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._common.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self.is_proven:
            self._received_bytes += len(data)
            if self._received_bytes > UNPROVEN_MAX_BYTES:
                self._listener.refused(self.source, f"more than {UNPROVEN_MAX_BYTES} bytes without a proof")
                self.drop()
                return
            if self._tls is not None:
                assert self._transport is not None
                self._transport.pause_reading()
                self._listener.take_turn(self, data)
                return
        self._take_data(data)

    def shake_hands(self, data: bytes) -> None:
        """Process data from an unproven client: it is this connection's turn."""
        if self._is_over:
            return
        assert self._transport is not None
        self._take_data(data)
        if not self._is_over and not self._is_held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take_data(self, data: bytes) -> None:
        text = data if self._tls is None else self._open_seal(data, self._tls)
        if text:
            self._frames.feed(text)
            self._take_frames()
            if not self._is_over:
                self._backlog.count_incoming(self, self._frames.held_bytes)

    def eof_received(self) -> bool:
        return False  # let the transport close itself

    def connection_lost(self, _error: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._is_over = True
        self._backlog.let_go(self)
        if self._session is not None:
            self._service.leave(self._session)
        # Break reference cycles here: until the garbage collector ran, a flood's sessions would take hundreds of
        # megabytes.
        self._session = self._tls_session = None
        self._listener.ended(self)

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._write_more()
        if self._is_held and self._backlog.unsent_bytes < OUTBOX_FULL_BYTES and not self._is_over:
            self._is_held = False
            assert self._transport is not None
            self._transport.resume_reading()
            self._take_frames()
            if not self._is_over:
                self._backlog.count_incoming(self, self._frames.held_bytes)

    # Input

    def _open_seal(self, data: bytes, tls: ServerTls) -> bytes:
        """Decrypt data from the client. The session is made when the first bytes arrive."""
        import ssl

        from holdfast.coordination.tls_session import TlsSession

        assert self._transport is not None
        if self._tls_session is None:
            self._tls_session = TlsSession(tls.context, server_side=True)
            self._listener.begun(self)
            if self._is_over:
                return b""
        session = self._tls_session
        try:
            text = session.receive(data)
        except ssl.SSLError as error:
            self._listener.refused(self.source, f"no TLS: {error.reason or error}")
            self._backlog.let_go(self)  # nothing more can be sealed
            self._transport.write(session.to_send())  # the TLS alert tells the client why
            self._end_soon()
            return b""
        answer = session.to_send()
        if answer:
            self._transport.write(answer)
        return text

    def _take_frames(self) -> None:
        assert self._transport is not None
        try:
            while not self._is_over:
                if self._backlog.unsent_bytes >= OUTBOX_FULL_BYTES:
                    if not self._is_held:
                        self._is_held = True
                        self._transport.pause_reading()
                    return
                taken = self._frames.take()
                if taken is None:
                    return
                if self.is_proven:
                    self._take_request(*taken)
                else:
                    self._take_proof(taken[1])
        except ProtocolError as error:
            why = headline(f"not the protocol: {error}", TEXT_MAX_CHARS)
            self._listener.refused(self.source, why)
            self._part(Failed(Reason.PROTOCOL, why))

    def _take_proof(self, body: bytes | bytearray) -> None:
        proof = decode_proof(body)
        binding = NO_BINDING if self._tls is None else self._tls.binding
        challenge = Challenge(self._nonce, proof.nonce, self._store, binding)
        if proof.version != VERSION:
            self._refuse(f"the store speaks version {VERSION} of the protocol, not {proof.version}")
        elif not is_proved(proof.mac, self._token, "client", challenge):
            self._refuse("wrong token")
        elif not self._listener.has_room():
            self._refuse("as many nodes as the job has are connected")
        else:
            self.is_proven = True
            self._session = Session(self._tell, self.source)
            self._frames.limit_bytes = FRAME_MAX_BYTES
            self._listener.proven(self)
            self._send(THE_CONNECTION, encode(Proved(prove(self._token, "server", challenge))))

    def _refuse(self, why: str) -> None:
        self._listener.refused(self.source, why)
        self._part(Failed(Reason.REFUSED, why))

    def _take_request(self, channel: int, body: bytes | bytearray) -> None:
        assert self._session is not None
        answer = self._service.answer(self._session, channel, decode_request(body))
        if answer is not None:
            self._tell(channel, answer)

    def _part(self, why: Failed) -> None:
        """Send the reason, and end the connection."""
        self._send(THE_CONNECTION, encode(why))
        self._end_soon()

    def _end_soon(self) -> None:
        """Give the client `LINGER_S` to read what was sent. Nothing more is read, so it cannot keep the connection open
        by sending, nor by reading nothing.
        """
        assert self._transport is not None
        self._is_over = True
        if self._transport.is_closing():
            return
        if not self._is_held:
            self._transport.pause_reading()
        if self._transport.can_write_eof() and not self._backlog.has_unsent:
            self._transport.write_eof()
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    # Output

    def _tell(self, channel: int, message: Answer | Changed) -> None:
        if self._is_over:
            return
        body = self._common.encode(message)
        if body is not None:
            self._send(channel, body)
        elif isinstance(message, Changed):
            self.drop()  # a client must not miss a change; after it reconnects, it gets CompactedError
        else:
            self._send(channel, encode(Failed(Reason.VALUE, f"an answer of more than {ANSWER_MAX_BYTES} bytes")))

    def _send(self, channel: int, body: bytes) -> None:
        assert self._transport is not None
        if self._can_write and len(body) <= PIECE_BYTES:
            self._write(frame(channel, body))
            return
        size = len(body) + MESSAGE_OVERHEAD_BYTES
        if self._backlog.unsent_bytes and self._backlog.unsent_bytes + size > OUTBOX_MAX_BYTES:
            self.drop()
            return
        self._backlog.put(self, channel, body)
        if self._can_write:
            self._write_more()
        self._common.held.drop_surplus()

    def _write_more(self) -> None:
        """Write from the backlog in pieces until the kernel takes no more."""
        while self._backlog.has_unsent and self._can_write:
            self._write(self._backlog.next_piece())
        self._backlog.moved(self)

    def _write(self, data: bytes | memoryview) -> None:
        assert self._transport is not None
        self._transport.write(data if self._tls_session is None else self._tls_session.seal(data))
