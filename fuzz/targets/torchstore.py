"""The workers' store: its parser with its key space, and the server as a whole.

Promises of the parser and the key space: the requests, the replies and the error are the same however the bytes are
cut. Nothing but a `ProtocolError` is raised. A peer that is gone leaves no waits.

Promises of the server: whatever a client sends, the server ends that connection or serves it. It answers everybody else
and logs no mistake of its own.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from fuzz.oracles import pieces, promise
from fuzz.shapes import BYTES
from fuzz.target import MIB, Target
from holdfast.torchstore import wire
from holdfast.torchstore.keyspace import KeySpace
from holdfast.torchstore.requests import Requests
from holdfast.torchstore.server import TorchStoreServer
from holdfast.torchstore.waits import Peer

if TYPE_CHECKING:
    from collections.abc import Iterable

GREETING = bytes([wire.VALIDATE]) + wire.U32.pack(wire.MAGIC)
ANSWER_MAX_S = 20.0
"""How long the server may take to answer. It takes a millisecond on a machine that has nothing else to do."""

PING = bytes([wire.PING]) + wire.U32.pack(77)


def _string(text: bytes) -> bytes:
    return wire.U64.pack(len(text)) + text


def _strings(*texts: bytes) -> bytes:
    return b"".join(map(_string, texts))


def _keys(*keys: bytes) -> bytes:
    return wire.U64.pack(len(keys)) + _strings(*keys)


ASKED = (
    bytes([wire.SET]) + _strings(b"a", b"1"),
    bytes([wire.COMPARE_SET]) + _strings(b"a", b"1", b"2"),
    bytes([wire.COMPARE_SET]) + _strings(b"new", b"", b"2"),
    bytes([wire.GET]) + _string(b"a"),
    bytes([wire.ADD]) + _string(b"n") + wire.I64.pack(5),
    bytes([wire.ADD]) + _string(b"n") + wire.I64.pack(-(1 << 63)),
    bytes([wire.CHECK]) + _keys(b"a", b"b"),
    bytes([wire.WAIT]) + _keys(b"a"),
    bytes([wire.WAIT]) + _keys(b"b", b"q", b"a"),
    bytes([wire.GETNUMKEYS]),
    bytes([wire.DELETE_KEY]) + _string(b"a"),
    bytes([wire.APPEND]) + _strings(b"a", b"more"),
    bytes([wire.MULTI_GET]) + _keys(b"a", b"n"),
    bytes([wire.MULTI_SET]) + wire.U64.pack(2) + _strings(b"a", b"1", b"b", b"2"),
    bytes([wire.CANCEL_WAIT]),
    PING,
    bytes([wire.QUEUE_PUSH]) + _strings(b"q", b"first"),
    bytes([wire.QUEUE_POP]) + _string(b"q"),
    bytes([wire.QUEUE_LEN]) + _string(b"q"),
    bytes([wire.LIST_KEYS]),
    bytes([wire.BARRIER]) + _string(b"bar") + wire.I64.pack(2),
)


def _seeds() -> list[bytes]:
    return [*(GREETING + each for each in ASKED), GREETING + b"".join(ASKED), GREETING + b"".join(ASKED[::-1] * 2)]


def _replies(parts: Iterable[bytes]) -> tuple[bytes, str]:
    """All that one client is told, and why its connection ends."""
    requests, keyspace, peer, other = Requests(), KeySpace(), Peer(), Peer()
    keyspace.operations[wire.WAIT](other, [b"a"])
    why = ""
    try:
        for part in parts:
            requests.feed(part)
            while (request := requests.take()) is not None:
                keyspace.operations[request[0]](peer, *request[1])
                while peer.strings is not None:  # a long reply, which is written as the peer takes it
                    peer.put_part()
    except wire.ProtocolError as error:
        why = str(error)
    said = b"".join(peer.out)
    keyspace.leave(peer)
    keyspace.leave(other)
    promise(len(keyspace._waits) == 0, "a wait is left of peers that are gone")
    return said, why


def _run_requests(data: bytes) -> None:
    whole, cut = _replies([data]), _replies(pieces(data))
    promise(whole == cut, f"the replies depend on how the bytes are cut: {whole[1]!r} and {cut[1]!r}")


class _Mistakes(logging.Handler):
    """What the server logs as its own mistake."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


def _run_server(data: bytes) -> None:
    mistakes = _Mistakes()
    logger = logging.getLogger("holdfast")
    logger.addHandler(mistakes)
    try:
        with TorchStoreServer("127.0.0.1") as server:
            server.start()
            place = ("127.0.0.1", server.port)
            with (
                socket.create_connection(place, ANSWER_MAX_S) as bad,
                socket.create_connection(place, ANSWER_MAX_S) as good,
            ):
                try:
                    for part in pieces(data):
                        bad.sendall(part)
                except OSError:
                    pass  # the server has hung up
                good.sendall(GREETING + PING)
                promise(good.recv(4) == PING[1:], "the store does not answer others")
    finally:
        logger.removeHandler(mistakes)
    promise(not mistakes.found, f"the store made a mistake: {mistakes.found[:1]}")


TARGETS = (
    Target("store-requests", _run_requests, _seeds, BYTES, memory_max_bytes=32 * MIB),
    Target("store-server", _run_server, _seeds, BYTES, short_runs=40),
)
