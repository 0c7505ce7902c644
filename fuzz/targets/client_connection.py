"""The client's end of a connection to the coordination store: `ClientConnection`, and a server that says anything.

The first byte of an input says how far the server behaves; see `Mode`. The rest is what it sends then.

Promises: nothing is raised. Whatever the server says, all that waits has an answer or an error when the connection has
ended. What the errors say is bounded and fit for a terminal. A watch holds a bounded number of changes. It makes no
difference how the bytes are cut.
"""

from __future__ import annotations

import asyncio
from enum import IntFlag
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from fuzz.oracles import check_shown, pieces, promise
from fuzz.shapes import FRAMES
from fuzz.target import MIB, Target
from fuzz.targets.server_connection import NONCE, TOKEN, after_first, client_tls, server_tls, steady
from fuzz.targets.wire import ANSWERS, framed, frames_in
from fuzz.transport import KeptTransport
from fuzz.typed import values_of
from holdfast.coordination import wire
from holdfast.coordination.client_connection import ClientConnection, EmbeddedWatch, failure
from holdfast.coordination.errors import CoordinationError
from holdfast.coordination.handshake import VERSION, Challenge, Greeting, Proved, prove
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.queued_watch import BACKLOG_MAX
from holdfast.coordination.tls_session import NO_BINDING, TlsSession

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

STORE = bytes(16)

ERROR_MAX_CHARS = 1_000
"""How long an error may be: the address, what the server said, and what to do."""

HANDSHAKE_MAX_TURNS = 8


class Mode(IntFlag):
    """How far the server behaves before it says what the input holds."""

    GREETED = 1
    PROVEN = 2
    TLS = 4
    RAW = 8
    """The input is in place of TLS, after the handshake if it is proven."""


class _Heard(NamedTuple):
    """What came of an input."""

    answers: list[str]
    proven: str
    changes: int


class _Server:
    """A connection, and what its server does."""

    def __init__(self, mode: Mode) -> None:
        tls = (client_tls(), "") if Mode.TLS in mode else None
        self._mode = mode
        self.connection = ClientConnection("10.0.0.1:29400", TOKEN, 60.0, tls=tls)
        self.transport = KeptTransport()
        self._session: TlsSession | None = None
        self._said = bytearray()
        self.connection.connection_made(self.transport)
        if mode & (Mode.GREETED | Mode.PROVEN):
            self.send(framed([Greeting(VERSION, NONCE, STORE, Mode.TLS in mode)], 0))
            if Mode.TLS in mode and not (Mode.RAW in mode and Mode.PROVEN not in mode):
                self._shake_hands()
        if Mode.PROVEN in mode:
            self._prove()

    def send(self, data: bytes, *, is_raw: bool = False) -> None:
        sealed = data if self._session is None or is_raw else self._session.seal(data)
        if sealed and not self.transport.is_over:
            self.connection.data_received(sealed)
        said = self.transport.take()
        if self._session is None:
            self._said += said
        elif said and not is_raw:
            self._said += self._session.receive(said)

    def _shake_hands(self) -> None:
        session = TlsSession(server_tls().context, server_side=True)
        for _ in range(HANDSHAKE_MAX_TURNS):
            said, self._said = bytes(self._said), bytearray()
            heard = session.receive(said)
            if session.is_established:
                self._session = session
                self._said += heard
                self.send(session.to_send(), is_raw=True)
                return
            self.send(session.to_send())
        promise(False, "an honest server's TLS is not accepted")

    def _prove(self) -> None:
        frames, _ = frames_in([bytes(self._said)], wire.FRAME_MAX_BYTES)
        proof = wire.decode_proof(frames[0][1])
        binding = server_tls().binding if Mode.TLS in self._mode else NO_BINDING
        challenge = Challenge(NONCE, proof.nonce, STORE, binding)
        self.send(framed([Proved(prove(TOKEN, "server", challenge))], 0))
        promise(self.connection.proven.done(), "an honest server is not believed")


async def _listen(mode: Mode, parts: Iterable[bytes]) -> _Heard:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    server = _Server(mode)
    connection = server.connection
    waiting: list[asyncio.Future[Any]] = []
    watch = EmbeddedWatch(BACKLOG_MAX)
    if Mode.PROVEN in mode:
        puts = Transaction((), (Put("a", b""),))
        asked = (wire.Get("a"), wire.GetPrefix("a"), wire.Grant(1.0), wire.Transact(puts), wire.KeepAlive(1))
        waiting = [connection.ask(request) for request in asked]
        connection.open_watch(watch, "a/", 1)
        server.transport.take()
    for part in parts:
        server.send(part, is_raw=Mode.RAW in mode)
    is_proven = connection.proven.done() and connection.proven.exception() is None
    promise(is_proven == (Mode.PROVEN in mode), "a server without the token is believed")
    promise(len(watch._backlog) <= BACKLOG_MAX, "a watch holds more changes than it may")
    connection.connection_lost(None)
    promise(all(future.done() for future in [*waiting, connection.proven, connection.ended]), "somebody waits for ever")
    loop: Any = asyncio.get_running_loop()
    promise(all(timer.cancelled() for timer in loop._scheduled), "a timer is left of a connection that ended")
    await asyncio.sleep(0)
    changes = len(watch._backlog)
    if watch._failure is not None:
        _text_of(watch._failure)
    watch.close()
    promise(not unheard, f"nobody handles {unheard[:1]}")
    return _Heard([_outcome(future) for future in waiting], _outcome(connection.proven), changes)


def _outcome(future: asyncio.Future[Any]) -> str:
    error = future.exception()
    if error is not None:
        return _text_of(error)
    answer = future.result()
    return _text_of(failure(answer)) if isinstance(answer, wire.Failed) else wire.encode(answer).hex()


def _text_of(error: BaseException) -> str:
    promise(isinstance(error, CoordinationError | ValueError), f"an error of another kind: {error!r}")
    check_shown(str(error), "an error of the store", ERROR_MAX_CHARS)
    return f"{type(error).__name__}: {error}"


def _run(data: bytes) -> None:
    mode = Mode(data[0] % 16) if data else Mode(0)
    heard = []
    for parts in ([data[1:]], list(pieces(data[1:]))):
        with asyncio.Runner() as runner:
            heard.append(runner.run(_listen(mode, parts)))
    # A greeting ends the plain text, so there it matters whether something came with it.
    if Mode.RAW not in mode and mode & (Mode.GREETED | Mode.PROVEN):
        promise(heard[0] == heard[1], f"it depends on how the bytes are cut: {heard[0]} and {heard[1]}")


def _seeds() -> list[bytes]:
    greetings = [Greeting(VERSION, NONCE, STORE, has_tls) for has_tls in (False, True)]
    refusal = wire.Failed(wire.Reason.REFUSED, "the token is another one")
    hello = TlsSession(server_tls().context, server_side=True)
    client = TlsSession(client_tls())
    client.receive(b"")
    hello.receive(client.to_send())
    return [
        *(bytes([0]) + framed([greeting], 0) for greeting in greetings),
        bytes([0]) + framed([Greeting(VERSION + 1, NONCE, "other")], 0),
        bytes([0]) + b"HTTP/1.1 400 Bad Request\r\n\r\n",
        *(
            bytes([Mode.GREETED | tls]) + framed([said], 0)
            for said in (refusal, Proved(NONCE))
            for tls in (0, Mode.TLS)
        ),
        bytes([Mode.PROVEN]) + framed(ANSWERS),
        bytes([Mode.PROVEN]) + framed([ANSWERS[8]] * 4, 6) + framed([refusal], 0),
        bytes([Mode.PROVEN | Mode.TLS]) + framed(ANSWERS),
        bytes([Mode.GREETED | Mode.TLS | Mode.RAW]) + steady(hello.to_send()),
        bytes([Mode.PROVEN | Mode.TLS | Mode.RAW]) + b"\x15\x03\x03\x00\x02\x01\x00",
        bytes([Mode.PROVEN | Mode.TLS | Mode.RAW]) + b"\x17\x03\x03\x00\x20" + bytes(32),
    ]


def _records() -> st.SearchStrategy[bytes]:
    answers = st.lists(st.tuples(st.integers(0, 7), values_of(wire.Answer)), min_size=1, max_size=8)
    return answers.map(lambda said: bytes([Mode.PROVEN]) + b"".join(framed([each], channel) for channel, each in said))


TARGETS = (
    Target(
        *("client-connection", _run, _seeds, after_first(FRAMES), _records),
        memory_max_bytes=wire.ANSWER_MAX_BYTES + 16 * MIB,
        short_runs=100,
    ),
)
