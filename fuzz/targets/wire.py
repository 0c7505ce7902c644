"""Frames and messages of the coordination store.

Promises: the frames are the same however the bytes are cut. No body is longer than the limit. Nothing but a
`ProtocolError` is raised. A message that can be read is written and read again as the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from fuzz.oracles import pieces, promise
from fuzz.shapes import FRAMES
from fuzz.target import Target
from fuzz.typed import values_of
from holdfast.coordination import wire
from holdfast.coordination.handshake import VERSION, Greeting, Proof, Proved
from holdfast.coordination.model import (
    Change,
    Changes,
    Created,
    Delete,
    DeletePrefix,
    Entry,
    Lease,
    Modified,
    Outcome,
    Put,
    Snapshot,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

ENTRY = Entry("a/1", b"value", 2, 3, 77)

REQUESTS: tuple[wire.Request, ...] = (
    wire.Get("a/1"),
    wire.GetPrefix("a/"),
    wire.GetPrefix(""),
    wire.Transact(Transaction((Created("a/1", 0),), (Put("a/1", b"one"), Put("a/2", b"two")), (Delete("a/2"),))),
    wire.Transact(Transaction((Modified("a/1", 2), Created("b", 0)), (Delete("a/1"), DeletePrefix("b/")))),
    wire.Transact(Transaction((), (Put("b/\u00e9", b"x" * 300),))),
    wire.Grant(10.0),
    wire.KeepAlive(77),
    wire.Revoke(77),
    wire.WatchFrom("a/", 1),
    wire.WatchFrom("", 2),
    wire.Unwatch(),
)
ANSWERS: tuple[wire.Answer, ...] = (
    wire.Found(ENTRY),
    wire.Found(None),
    wire.Listed(Snapshot(7, (ENTRY, Entry("b", b"", 4, 4)))),
    wire.Transacted(Outcome(succeeded=True, revision=8)),
    wire.Granted(Lease(77, 10.0)),
    wire.Kept(10.0),
    wire.Revoked(),
    wire.Watching(),
    wire.Changed(Changes(9, (Change("a/1", ENTRY), Change("b")))),
    wire.Failed(wire.Reason.VALUE, "no such thing"),
    wire.Failed(wire.Reason.REFUSED, "the token is another one"),
    wire.Failed(wire.Reason.PROTOCOL, "not the protocol"),
    wire.Failed(wire.Reason.LEASE_LOST, "lease 77 no longer exists"),
    wire.Failed(wire.Reason.COMPACTED, "changes before revision 5 are no longer kept"),
)
HANDSHAKES = (
    Greeting(VERSION, bytes(32), bytes(16), has_tls=False),
    Greeting(VERSION, bytes(32), bytes(16), has_tls=True),
    Greeting(VERSION + 1, bytes(32), "another thing"),
    Proof(VERSION, bytes(32), bytes(32)),
    Proved(bytes(32)),
)

DECODERS: tuple[Callable[[bytes], Any], ...] = (
    *(wire.decode_request, wire.decode_answer, wire.decode_proof, wire.decode_greeting, wire.decode_proved),
)


def framed(messages: Iterable[object], first_channel: int = 1) -> bytes:
    """Messages in frames, each on a channel of its own."""
    return b"".join(wire.frame(channel, wire.encode(each)) for channel, each in enumerate(messages, first_channel))


def _seeds() -> list[bytes]:
    each = [framed([message]) for message in (*REQUESTS, *ANSWERS, *HANDSHAKES)]
    return [*each, framed(REQUESTS), framed(ANSWERS), framed(HANDSHAKES, 0)]


def _records() -> st.SearchStrategy[bytes]:
    kinds = (wire.Request, wire.Answer, Greeting, Proof, Proved)
    return st.lists(st.one_of(*map(values_of, kinds)), min_size=1, max_size=4).map(framed)


def frames_in(parts: Iterable[bytes], limit_bytes: int) -> tuple[list[tuple[int, bytes]], str]:
    """The frames, and what is wrong with what follows them."""
    frames = wire.Frames(limit_bytes)
    found: list[tuple[int, bytes]] = []
    for part in parts:
        frames.feed(part)
        try:
            while (taken := frames.take()) is not None:
                found.append((taken[0], bytes(taken[1])))
        except wire.ProtocolError as error:
            return found, str(error)
    return found, ""


def _run(data: bytes) -> None:
    for limit_bytes in (wire.UNPROVEN_FRAME_MAX_BYTES, wire.FRAME_MAX_BYTES):
        whole = frames_in([data], limit_bytes)
        promise(whole == frames_in(pieces(data), limit_bytes), "the frames depend on how the bytes are cut")
        promise(all(len(body) <= limit_bytes for _, body in whole[0]), "a frame is longer than the limit")
        promise(whole[1] or sum(len(body) for _, body in whole[0]) <= len(data), "there is more than was fed")
    for _, body in whole[0]:
        for decode in DECODERS:
            try:
                message = decode(body)
            except wire.ProtocolError:
                continue
            again = wire.encode(message)
            promise(wire.encode(decode(again)) == again, "a message is another one when it is read again")


TARGETS = (Target("wire", _run, _seeds, FRAMES, _records, memory_max_bytes=5 * wire.FRAME_MAX_BYTES),)
