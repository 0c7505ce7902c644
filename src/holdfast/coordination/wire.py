"""The wire protocol between a client and the embedded server.

Everything is a *frame*: the length of its body and a channel, four bytes each, then the body, one message in msgpack.
The channel is the number that the client gave to its request. An answer carries the number of its request, a change
that of its watch, and 0 is for the connection itself. The channel is outside of the body, so that a body that goes to a
thousand clients is encoded once.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from holdfast.coordination.handshake import Greeting, Proof, Proved
from holdfast.coordination.model import (  # noqa: TC001 - msgspec reads the annotations
    Changes,
    Entry,
    Lease,
    Outcome,
    Snapshot,
    Transaction,
)
from holdfast.decoding import UndecodableError, decoded

FRAME_MAX_BYTES = 4 << 20
"""The size limit of a request's body."""

ANSWER_MAX_BYTES = 64 << 20
"""The size limit of an answer's body. An answer can hold the data of many requests."""

UNPROVEN_FRAME_MAX_BYTES = 1 << 10
"""The size limit of a body before the other side has proved that it knows the token."""

THE_CONNECTION = 0
"""The channel of messages about the connection itself."""

CHANNEL_MAX = (1 << 32) - 1

HEADER = struct.Struct("!II")


class ProtocolError(Exception):
    """The peer violates the protocol."""


class Reason(StrEnum):
    """Why a request failed."""

    VALUE = "value"
    """The request has a value that no engine accepts: ValueError."""

    FULL = "full"
    """There is no room now, but there may be later: StoreUnavailableError."""

    LEASE_LOST = "lease lost"
    COMPACTED = "compacted"

    REFUSED = "refused"
    """The client has not proved that it knows the token. The connection ends."""

    PROTOCOL = "protocol"
    """The client violates the protocol. The connection ends."""


# Requests


class Get(Struct, frozen=True, array_like=True, tag="get"):
    key: str


class GetPrefix(Struct, frozen=True, array_like=True, tag="prefix"):
    prefix: str


class Transact(Struct, frozen=True, array_like=True, tag="transact"):
    transaction: Transaction


class Grant(Struct, frozen=True, array_like=True, tag="grant"):
    ttl_s: float


class KeepAlive(Struct, frozen=True, array_like=True, tag="keep"):
    lease: int


class Revoke(Struct, frozen=True, array_like=True, tag="revoke"):
    lease: int


class WatchFrom(Struct, frozen=True, array_like=True, tag="watch"):
    """Watch changes. They come over this request's channel from now on, past ones before the answer."""

    prefix: str
    from_revision: int


class Unwatch(Struct, frozen=True, array_like=True, tag="unwatch"):
    """End the watch of this channel. There is no answer."""


Request: TypeAlias = Get | GetPrefix | Transact | Grant | KeepAlive | Revoke | WatchFrom | Unwatch


# Answers


class Found(Struct, frozen=True, array_like=True, tag="found"):
    entry: Entry | None


class Listed(Struct, frozen=True, array_like=True, tag="listed"):
    snapshot: Snapshot


class Transacted(Struct, frozen=True, array_like=True, tag="transacted"):
    outcome: Outcome


class Granted(Struct, frozen=True, array_like=True, tag="granted"):
    lease: Lease


class Kept(Struct, frozen=True, array_like=True, tag="kept"):
    ttl_s: float


class Revoked(Struct, frozen=True, array_like=True, tag="revoked"):
    pass


class Watching(Struct, frozen=True, array_like=True, tag="watching"):
    pass


class Changed(Struct, frozen=True, array_like=True, tag="changed"):
    """Changes of a watch. Not an answer to a request."""

    changes: Changes


class Failed(Struct, frozen=True, array_like=True, tag="failed"):
    reason: Reason
    text: str


Answer: TypeAlias = Found | Listed | Transacted | Granted | Kept | Revoked | Watching | Changed | Failed

encode = Encoder().encode

_REQUESTS: Decoder[Any] = Decoder(Request)
_ANSWERS: Decoder[Any] = Decoder(Answer)
_PROOFS: Decoder[Any] = Decoder(Proof)
_GREETINGS: Decoder[Any] = Decoder(Greeting | Failed)
_COUNTERPROOFS: Decoder[Any] = Decoder(Proved | Failed)


def decode_request(body: bytes | bytearray) -> Request:
    request: Request = _decode(_REQUESTS, body, "a request")
    return request


def decode_answer(body: bytes | bytearray) -> Answer:
    answer: Answer = _decode(_ANSWERS, body, "an answer")
    return answer


def decode_proof(body: bytes | bytearray) -> Proof:
    proof: Proof = _decode(_PROOFS, body, "a proof")
    return proof


def decode_greeting(body: bytes | bytearray) -> Greeting | Failed:
    greeting: Greeting | Failed = _decode(_GREETINGS, body, "a greeting")
    return greeting


def decode_proved(body: bytes | bytearray) -> Proved | Failed:
    proved: Proved | Failed = _decode(_COUNTERPROOFS, body, "a proof")
    return proved


def _decode(decoder: Decoder[Any], body: bytes | bytearray, what: str) -> Any:
    try:
        return decoded(decoder, body)
    except UndecodableError as error:
        raise ProtocolError(f"{what} that cannot be read: {error}") from None


def frame(channel: int, body: bytes) -> bytes:
    return HEADER.pack(len(body), channel) + body


class Frames:
    """Splits a byte stream into whole frames.

    It holds at most one body, as far as it has arrived, and the last chunk until that is taken. A body in pieces is
    assembled in one buffer, so that its cost does not depend on the pieces.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._data = b""
        self._offset = 0
        self._channel = THE_CONNECTION
        self._length = 0
        self._body: bytearray | None = None

    @property
    def held_bytes(self) -> int:
        return len(self._data) + (0 if self._body is None else len(self._body))

    def feed(self, data: bytes) -> None:
        self._data = data if self._offset == len(self._data) else self._data[self._offset :] + data
        self._offset = 0

    def has_more(self) -> bool:
        """Whether fed data is left that was not taken."""
        return self._body is not None or self._offset < len(self._data)

    def take(self) -> tuple[int, bytes | bytearray] | None:
        """The next frame's channel and body, or None if it is incomplete.

        Raises:
            ProtocolError: the frame is longer than the limit. Its header shows that.
        """
        if self._body is not None:
            return self._fill(self._body)
        start = self._offset + HEADER.size
        if len(self._data) < start:
            self.feed(b"")  # release the taken data
            return None
        length, self._channel = HEADER.unpack_from(self._data, self._offset)
        if length > self.limit_bytes:
            raise ProtocolError(f"a frame of {length} bytes, more than {self.limit_bytes}")
        self._offset = start
        if len(self._data) - start < length:
            self._length = length
            self._body = bytearray()  # grow with the data: the header's length may be a lie
            return self._fill(self._body)
        self._offset = start + length
        return self._channel, self._data[start : self._offset]

    def _fill(self, body: bytearray) -> tuple[int, bytearray] | None:
        piece = memoryview(self._data)[self._offset : self._offset + self._length - len(body)]
        body += piece
        self._offset += len(piece)
        if len(body) < self._length:
            self.feed(b"")
            return None
        self._body = None
        return self._channel, body
