"""The key space of the coordination store: any requests, of three clients, in any order, while time goes by.

An input is frames of requests. The channel of a frame also says which client sends it and how much time passes before.

Promises: nothing is raised, and every failure has a short text. What the store counts is what it holds: keys in order,
bytes, leases, history, watches. A watch is told of every change under its prefix, once and in order: who follows the
changes from the beginning has what the store has. The limits of the store hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import strategies as st

from fuzz.oracles import promise
from fuzz.shapes import FRAMES
from fuzz.target import Target
from fuzz.targets.server_connection import no_chance
from fuzz.targets.wire import REQUESTS, framed, frames_in
from fuzz.typed import values_of
from holdfast.coordination import wire
from holdfast.coordination.keyspace import KeySpace, _bytes_of
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.service import Service, Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.coordination.model import Changes, Entry

CLIENTS = 3
STEPS_S = (0.0, 0.0, 0.0, 0.05, 0.2, 1.0, 15.0, 100_000.0)

HISTORY_MAX_REVISIONS = 20
HISTORY_MAX_BYTES = 10_000
ENTRIES_MAX_BYTES = 16_000
LEASES_MAX = 8
"""Limits that inputs of a few kilobytes reach."""

FAILURE_MAX_CHARS = 1_000
"""How long the text of a failure may be, whatever the request was."""


class _Timer:
    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self._when = when
        self.call = call
        self.is_cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.is_cancelled = True


class _Clock:
    """What the service needs of an event loop."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._timers: list[_Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> _Timer:
        self._timers.append(_Timer(when, call))
        return self._timers[-1]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while due := [timer for timer in self._timers if timer.when() <= self.now or timer.is_cancelled]:
            self._timers = [timer for timer in self._timers if timer not in due]
            for timer in due:
                if not timer.is_cancelled:
                    timer.call()


class _Follower:
    """Somebody who follows all changes from the beginning."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.revision = 1

    def take(self, changes: Changes) -> None:
        promise(changes.revision == self.revision + 1, "a revision is left out, or comes twice")
        self.revision = changes.revision
        for change in changes.changes:
            if change.entry is None:
                promise(self.entries.pop(change.key, None) is not None, "a key is deleted that was not there")
            else:
                self.entries[change.key] = change.entry


class _Client:
    """A session, and what it was told for each of its watches."""

    def __init__(self, source: str) -> None:
        self.session = Session(self._hear, source)
        self.prefixes: dict[int, str] = {}
        self._revisions: dict[int, int] = {}
        self._asked: tuple[int, str] = (0, "")

    def ask(self, service: Service, channel: int, request: Any) -> None:
        if isinstance(request, wire.WatchFrom) and channel not in self.prefixes:
            self._asked = (channel, request.prefix)
            self._revisions.pop(channel, None)
        answer = service.answer(self.session, channel, request)
        if isinstance(answer, wire.Watching):
            self.prefixes[channel] = request.prefix
        if isinstance(request, wire.Unwatch):
            self.prefixes.pop(channel, None)
        if isinstance(answer, wire.Failed):
            promise(len(answer.text) <= FAILURE_MAX_CHARS, f"a failure has a text of {len(answer.text)} characters")
        if answer is not None:
            promise(len(wire.encode(answer)) <= wire.ANSWER_MAX_BYTES, "an answer is too long to be sent")

    def _hear(self, channel: int, changed: wire.Changed) -> None:
        prefix = self.prefixes.get(channel)
        if prefix is None:
            promise(self._asked[0] == channel, "a watch that nobody has is told something")
            prefix = self._asked[1]
        changes = changed.changes
        promise(changes.changes, "a watch is told of nothing")
        promise(all(change.key.startswith(prefix) for change in changes.changes), "a watch is told of another's key")
        promise(changes.revision > self._revisions.get(channel, 0), "a watch is told of changes out of order")
        self._revisions[channel] = changes.revision


def _check(keyspace: KeySpace, follower: _Follower) -> None:
    entries = keyspace._entries
    promise(keyspace._keys == sorted(entries), "the keys are not in order, or not all there")
    held = sum(map(_bytes_of, entries.values()))
    promise(keyspace._entries_bytes == held <= ENTRIES_MAX_BYTES, "the bytes are not counted right, or too many")
    promise(entries == follower.entries, "who follows the changes does not have what the store has")
    for number, lease in keyspace._leases.items():
        of_it = {key for key, entry in entries.items() if entry.lease == number}
        promise(lease.keys == of_it, "a lease does not have the keys that were put under it")
    leases = {entry.lease for entry in entries.values()} - {0}
    promise(leases <= keyspace._leases.keys(), "a key is under a lease that is no more")
    revisions = [changes.revision for changes in keyspace._history]
    first = keyspace.revision + 1 - len(revisions)
    promise(revisions == list(range(first, keyspace.revision + 1)), "the history has gaps")
    promise(len(revisions) <= HISTORY_MAX_REVISIONS, "the history is too long")
    promise(keyspace._history_bytes <= HISTORY_MAX_BYTES, "the history has too many bytes")
    shares = keyspace._shares
    promise(
        len(keyspace._leases) == shares.taken == sum(shares._of.values()) <= LEASES_MAX, "leases are not counted right"
    )


def _run(data: bytes) -> None:
    clock = _Clock()
    keyspace = KeySpace(HISTORY_MAX_REVISIONS, HISTORY_MAX_BYTES, no_chance(), ENTRIES_MAX_BYTES, LEASES_MAX)
    service = Service(keyspace, clock)  # type: ignore[arg-type]  # a clock that the fuzzer moves
    follower = _Follower()
    end = keyspace.watch("", 2, follower.take)
    clients = [_Client(f"10.0.0.{number}") for number in range(CLIENTS)]
    for channel, body in frames_in([data], wire.FRAME_MAX_BYTES)[0]:
        try:
            request = wire.decode_request(body)
        except wire.ProtocolError:
            continue
        clock.advance(STEPS_S[channel // CLIENTS % len(STEPS_S)])
        clients[channel % CLIENTS].ask(service, channel, _with_real_lease(request, keyspace))
        _check(keyspace, follower)
    for client in clients:
        service.leave(client.session)
    end()
    promise(not keyspace._watches and not keyspace._lengths, "watches are left of clients that are gone")
    promise(not service._watches.taken, "watches are counted on for clients that are gone")
    service.stop()


def _with_real_lease(request: Any, keyspace: KeySpace) -> Any:
    """Leases have numbers that nobody can guess; a small number stands for one that is there."""
    leases = sorted(keyspace._leases)
    if isinstance(request, wire.KeepAlive | wire.Revoke) and 0 <= request.lease < len(leases):
        return type(request)(leases[request.lease])
    if isinstance(request, wire.Transact):
        made = wire.encode(request)
        return wire.decode_request(_renumbered(made, leases))
    return request


def _renumbered(made: bytes, leases: list[int]) -> bytes:
    name, transaction = msgspec.msgpack.decode(made)
    for operations in transaction[1:]:
        for operation in operations:
            if operation[0] == "p" and 0 < operation[3] <= len(leases):
                operation[3] = leases[operation[3] - 1]
    return msgspec.msgpack.encode([name, transaction])


def _seeds() -> list[bytes]:
    under_lease = wire.Transact(Transaction((), (_put("n/1", 1), _put("n/2", 2))))
    return [
        framed(REQUESTS),
        framed([wire.Grant(10.0), wire.Grant(0.1), under_lease, wire.KeepAlive(0), wire.Revoke(0), wire.Get("n/1")], 0),
        framed([wire.Grant(1.0), under_lease, *[wire.KeepAlive(0)] * 20], 0),
        framed([wire.WatchFrom("", 1), *(each for each in REQUESTS if isinstance(each, wire.Transact))] * 8, 0),
    ]


def _put(key: str, lease: int) -> Put:
    return Put(key, b"v", lease)


def _records() -> st.SearchStrategy[bytes]:
    requests = st.lists(st.tuples(st.integers(0, 30), values_of(wire.Request)), min_size=1, max_size=25)
    return requests.map(lambda asked: b"".join(framed([each], channel) for channel, each in asked))


TARGETS = (Target("service", _run, _seeds, FRAMES, _records, memory_max_bytes=5 * wire.FRAME_MAX_BYTES),)
