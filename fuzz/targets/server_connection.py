"""The server's end of a connection to the coordination store: `ServerConnection` itself, on a transport of ours.

The first byte of an input says how far the client has come (proof, TLS) and whether it reads slowly; see `Mode`. The
rest is what it sends.

Promises: nothing is raised. Who has not proved itself is told a few hundred bytes at most, and what the log says of it
is one line that is fit for a terminal. Every answer can be read. It makes no difference how the bytes are cut, nor how
slowly the client reads. What waits to be sent is bounded. Nothing of a connection is left after its end.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from enum import IntFlag
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from fuzz.oracles import check_line, pieces, promise
from fuzz.shapes import FRAMES, Shape
from fuzz.target import Target
from fuzz.targets.wire import REQUESTS, framed, frames_in
from fuzz.transport import KeptTransport
from fuzz.typed import values_of
from holdfast.coordination import wire
from holdfast.coordination.handshake import VERSION, Challenge, Greeting, Proof, prove
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.server_connection import OUTBOX_MAX_BYTES, TEXT_MAX_CHARS, Common, ServerConnection
from holdfast.coordination.service import Service
from holdfast.coordination.tls import own_client_context, own_server_tls
from holdfast.coordination.tls_session import NO_BINDING, TlsSession

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from typing import Any

    from holdfast.coordination.tls import ServerTls

TOKEN = b"a token of the fuzzer"
NONCE = bytes(range(32))

TOLD_UNPROVEN_MAX_BYTES = 4_096
"""How much is said to a client without proof: the greeting, the server's part of a TLS handshake, and a refusal."""

STRANGER_MAX_BYTES = 1_500
"""How much of an input a client without proof says: more than the one frame that it may send."""

HANDSHAKE_MAX_TURNS = 8


class Mode(IntFlag):
    """How an input is fed."""

    PROVEN = 1
    """After the proof."""

    TLS = 2
    RAW = 4
    """Not as a client says it over TLS, but in place of TLS: after the handshake if it is proven."""

    SLOW = 8
    """The client reads slowly."""


@cache
def server_tls() -> ServerTls:
    return own_server_tls()


@cache
def client_tls() -> ssl.SSLContext:
    return own_client_context()


def no_chance() -> Any:
    """Bytes that are always the same, where a store wants random ones."""
    numbers = count()
    return lambda size: hashlib.shake_128(str(next(numbers)).encode()).digest(size)


class _Listener:
    """As the server, it is told of a connection."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.turns: list[tuple[ServerConnection, bytes]] = []
        self.ended_count = 0

    def begun(self, connection: ServerConnection) -> None:
        """It has begun with TLS."""

    def take_turn(self, connection: ServerConnection, data: bytes) -> None:
        self.turns.append((connection, data))

    def has_room(self) -> bool:
        return True

    def proven(self, _connection: ServerConnection) -> None:
        """It has proved itself."""

    def refused(self, _source: str, why: str) -> None:
        self.refusals.append(why)

    def ended(self, _connection: ServerConnection) -> None:
        self.ended_count += 1


class _Heard(NamedTuple):
    """What came of an input. With TLS in raw, the bytes are others each time."""

    frames: list[tuple[int, bytes]]
    rest: str
    refusals: list[str]
    is_proven: bool


class _Client:
    """A connection, and what its client does."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.keyspace = KeySpace(random_bytes=no_chance(), history_max_revisions=100)
        self.service = Service(self.keyspace, asyncio.get_running_loop())
        self.listener = _Listener()
        self._tls = server_tls() if Mode.TLS in mode else None
        self.connection = ServerConnection(self.service, TOKEN, self._tls, Common(), "10.0.0.1", self.listener)
        self.connection._nonce = NONCE
        is_slow = Mode.SLOW in mode
        self.transport = KeptTransport(self.connection.pause_writing if is_slow else None)
        self.session: TlsSession | None = None
        self.heard = bytearray()
        self._raw = bytearray()
        self.told_bytes = 0
        self.connection.connection_made(self.transport)
        self._hear()

    def send(self, data: bytes) -> None:
        """What a network does: it brings nothing to who does not read, or is gone."""
        for _ in range(len(data) + 100):
            if not self.transport.is_reading_paused or self.connection._is_over:
                break
            self._drain()
        if data and not self.transport.is_over and not self.transport.is_reading_paused:
            self.connection.data_received(data)
        while self.listener.turns:
            connection, waiting = self.listener.turns.pop()
            connection.shake_hands(waiting)
        promise(self.connection._backlog.unsent_bytes <= OUTBOX_MAX_BYTES, "more waits to be sent than may")
        self._hear()

    def seal(self, data: bytes) -> bytes:
        return data if self.session is None else self.session.seal(data)

    def prove(self) -> None:
        """What an honest client says first."""
        binding = NO_BINDING if self._tls is None else self._tls.binding
        challenge = Challenge(NONCE, NONCE, self.keyspace.id, binding)
        proof = Proof(VERSION, NONCE, prove(TOKEN, "client", challenge))
        self.send(self.seal(wire.frame(wire.THE_CONNECTION, wire.encode(proof))))
        promise(self.connection.is_proven, "an honest client is not let in")

    def shake_hands(self) -> None:
        self.heard.clear()  # the greeting, in plain text
        self.session = TlsSession(client_tls())
        said = b""
        for _ in range(HANDSHAKE_MAX_TURNS):
            self.session.receive(said)
            self.send(self.session.to_send())
            if self.session.is_established:
                return
            said = bytes(self._raw)
            self._raw.clear()
        promise(False, "an honest client's TLS is not accepted")

    def _hear(self) -> None:
        data = self.transport.take()
        self.told_bytes += len(data)
        if self.session is None or (Mode.RAW in self.mode and self.connection.is_proven):
            self.heard += data
        elif not self.session.is_established:
            self._raw += data
        elif data:
            self.heard += self.session.receive(data)

    def _drain(self) -> None:
        self.transport.is_full = False
        self.connection.resume_writing()
        self._hear()

    def end(self) -> None:
        """Read all that is there, and leave."""
        for _ in range(1_000):
            if not self.transport.is_full or self.transport.is_over:
                break
            self._drain()
        self.connection.connection_lost(None)
        self.service.stop()
        promise(self.listener.ended_count == 1, "the server is not told once that a connection ended")
        promise(not self.connection._common.held.bytes, "what was held for a connection is counted on after its end")
        promise(not self.keyspace._watches, "a watch is left of a connection that ended")
        loop: Any = asyncio.get_running_loop()
        promise(all(timer.cancelled() for timer in loop._scheduled), "a timer is left of a connection that ended")


async def _serve(mode: Mode, parts: Iterable[bytes]) -> _Heard:
    client = _Client(mode)
    is_in_place_of_tls = Mode.RAW in mode and Mode.PROVEN not in mode
    if Mode.TLS in mode and not is_in_place_of_tls:
        client.shake_hands()
    if Mode.PROVEN in mode:
        client.prove()
    for part in parts:
        client.send(part if Mode.RAW in mode else client.seal(part))
    client.end()
    is_secret = Mode.TLS in mode and Mode.RAW in mode
    frames, rest = ([], "") if is_secret else frames_in([bytes(client.heard)], wire.ANSWER_MAX_BYTES)
    if Mode.PROVEN not in mode:
        promise(not client.connection.is_proven, "a client without the token is let in")
        promise(client.told_bytes <= TOLD_UNPROVEN_MAX_BYTES, f"a stranger is told {client.told_bytes} bytes")
    return _Heard(frames, rest, client.listener.refusals, client.connection.is_proven)


def _check(heard: _Heard) -> None:
    for why in heard.refusals:
        check_line(why, "the reason of a refusal", 2 * TEXT_MAX_CHARS)
    promise(not heard.rest, f"the server breaks its own protocol: {heard.rest}")
    for _, body in heard.frames[:2]:
        _read_any(body)
    for _, body in heard.frames[2:]:
        wire.decode_answer(body)


def _read_any(body: bytes) -> None:
    """A greeting, a proof, or an answer."""
    for decode in (wire.decode_greeting, wire.decode_proved, wire.decode_answer):
        try:
            decode(body)
        except wire.ProtocolError:
            continue
        return
    promise(False, "the server says something that no client can read")


def _run(data: bytes) -> None:
    mode = Mode(data[0] % 16) if data else Mode(0)
    # Over TLS, each piece of what a stranger says takes more, and what it may say in all is limited.
    said = data[1:] if Mode.PROVEN in mode else data[1 : 1 + STRANGER_MAX_BYTES]
    with asyncio.Runner() as runner:
        whole = runner.run(_serve(mode & ~Mode.SLOW, [said]))
    _check(whole)
    with asyncio.Runner() as runner:
        cut = runner.run(_serve(mode, pieces(said)))
    _check(cut)
    promise(whole.is_proven == cut.is_proven, "whether a client is let in depends on how its bytes are cut")
    if Mode.RAW not in mode:
        promise(whole.frames == cut.frames, "the answers depend on how the bytes are cut, or how slowly they are read")
        promise(whole.refusals == cut.refusals, "the refusals depend on how the bytes are cut")


def steady(hello: bytes) -> bytes:
    """The first message of a TLS handshake, of either side, with the same numbers where random ones stand."""
    (length,) = struct.unpack_from("!H", hello, 3)
    record = bytearray(hello[: 5 + length])
    record[11:43] = bytes(range(32))  # the random bytes
    record[44:76] = bytes(range(32, 64))  # the number of the session
    record[-32:] = bytes([9, *bytes(31)])  # a key: the base point of the curve
    return bytes(record)


def _client_hello() -> bytes:
    session = TlsSession(client_tls())
    session.receive(b"")
    return steady(session.to_send())


def _seeds() -> list[bytes]:
    proof = wire.frame(0, wire.encode(Proof(VERSION, NONCE, bytes(32))))
    many = framed([*REQUESTS, *REQUESTS])
    modes = [Mode.PROVEN, Mode.PROVEN | Mode.SLOW, Mode.PROVEN | Mode.TLS]
    return [
        *(bytes([mode]) + framed(REQUESTS) for mode in modes),
        bytes([Mode.PROVEN | Mode.SLOW]) + many,
        bytes([0]) + proof,
        bytes([0]) + framed([Greeting(VERSION, NONCE, bytes(16), has_tls=False)]),
        bytes([0]) + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes([Mode.TLS]) + proof,
        bytes([Mode.TLS | Mode.RAW]) + _client_hello(),
        bytes([Mode.TLS | Mode.RAW | Mode.PROVEN]) + b"\x17\x03\x03\x00\x20" + bytes(32),
        bytes([Mode.TLS | Mode.RAW | Mode.PROVEN]) + b"\x15\x03\x03\x00\x02\x01\x00",
    ]


def _records() -> st.SearchStrategy[bytes]:
    modes = st.sampled_from([Mode.PROVEN, Mode.PROVEN | Mode.SLOW])
    messages = st.lists(values_of(wire.Request), min_size=1, max_size=8)
    return st.builds(lambda mode, said: bytes([mode]) + framed(said), modes, messages)


def after_first(shape: Shape) -> Shape:
    """The shape of what follows the first byte."""

    def parse(data: bytes) -> Any:
        return [data[0], shape.parse(data[1:])]

    def dump(tree: Any) -> bytes:
        return bytes([tree[0] % 256]) + shape.dump(tree[1])

    return Shape(parse, dump)


TARGETS = (
    Target(
        *("server-connection", _run, _seeds, after_first(FRAMES), _records),
        memory_max_bytes=5 * wire.FRAME_MAX_BYTES,
        short_runs=100,
    ),
)
