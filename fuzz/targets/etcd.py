"""What etcd answers: a store on a channel that says anything.

The first byte of an input says which method is answered with the rest, and whether as a message or as an error. All
other methods are answered as an empty etcd does.

Promises: nothing but a `CoordinationError` is raised. What it says is one bounded line that is fit for a terminal. What
is taken for an answer is one: its numbers are in bounds, and its keys are those that were asked for.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from fuzz.oracles import check_line, promise
from fuzz.target import MIB, Target
from fuzz.typed import BYTES_MAX, I64_MAX, I64_MIN
from holdfast.coordination import etcd_messages as messages
from holdfast.coordination.errors import CoordinationError
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.etcd_answers import LEAST_TTL_MAX_S, REVISION_MAX
from holdfast.coordination.etcd_rpc import load_grpc
from holdfast.coordination.keyspace import TTL_MAX_S
from holdfast.coordination.model import Put, Transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

METHODS = (
    *("Range", "Txn", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "Watch", "Authenticate", "Status"),
    *("Alarm", "MemberList"),
)
AS_ERROR = 128
"""In the first byte: the input is the text of an error."""

ANSWER_TIMEOUT_S = 0.2
"""How long a request may take. A member without a leader is asked again until then."""

LEASE_S = 5
PREFIX = "runs/"
ERROR_MAX_CHARS = 1_000


def _honest(method: str) -> bytes:
    header = messages.ResponseHeader(cluster_id=1, revision=10, raft_term=1)
    fields: dict[str, dict[str, Any]] = {
        "LeaseGrant": {"ID": 7, "TTL": LEASE_S},
        "LeaseKeepAlive": {"TTL": LEASE_S},
        "Authenticate": {"token": "token.1"},
        "Status": {"version": "3.5.0", "leader": 1},
    }
    return bytes(_answer_of(method)(header=header, **fields.get(method, {})).SerializeToString())


def _answer_of(method: str) -> Any:
    return getattr(messages, f"{method}Response")


class _Channel:
    """In the place of gRPC's: every call is answered at once."""

    def __init__(self, method: str, said: bytes, *, is_error: bool) -> None:
        self._method = method
        self._said = said
        self._is_error = is_error

    def unary_unary(self, path: str, response_deserializer: Callable[[bytes], Any], **_: Any) -> Any:
        async def call(_: Any, **__: Any) -> Any:
            return self._answer(path, response_deserializer)

        return call

    def stream_stream(self, path: str, response_deserializer: Callable[[bytes], Any], **_: Any) -> Any:
        return lambda *_, **__: _Stream(lambda: self._answer(path, response_deserializer))

    def _answer(self, path: str, read: Callable[[bytes], Any]) -> Any:
        method = path.rpartition("/")[2]
        if method != self._method:
            return read(_honest(method))
        if self._is_error:
            raise _error(self._said)
        return read(self._said)

    async def close(self) -> None:
        pass


class _Stream:
    """Says one thing and ends."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self._has_said = False

    async def write(self, _: Any) -> None:
        pass

    async def read(self) -> Any:
        if self._has_said:
            return load_grpc().aio.EOF
        self._has_said = True
        return self._answer()

    async def __aiter__(self) -> AsyncIterator[Any]:
        yield self._answer()

    def cancel(self) -> None:
        pass


def _error(said: bytes) -> Exception:
    grpc = load_grpc()
    codes = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
    code = codes[said[0] % len(codes)] if said else grpc.StatusCode.UNKNOWN
    metadata = grpc.aio.Metadata()
    error: Exception = grpc.aio.AioRpcError(code, metadata, metadata, said[1:].decode("utf-8", "replace"))
    return error


async def _use(method: str, said: bytes, *, is_error: bool) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    endpoint = ("127.0.0.1", 2379)
    async with EtcdStore([endpoint], user="ann", password="x", answer_timeout_s=ANSWER_TIMEOUT_S) as store:
        connection: Any = store._connection
        connection._open_channel = lambda _: _Channel(method, said, is_error=is_error)
        for ask in (_read, _write, _lease, _watch, _look):
            try:
                await ask(store)
            except CoordinationError as error:
                check_line(str(error), "an error of etcd", ERROR_MAX_CHARS)
    promise(not unheard, f"nobody handles {unheard[:1]}")


async def _read(store: EtcdStore) -> None:
    snapshot = await store.get_prefix(PREFIX)
    _check_revisions(snapshot.revision)
    for entry in snapshot.entries:
        promise(entry.key.startswith(PREFIX), "an entry that was not asked for")
        promise(entry.lease >= 0, "an entry of no lease")
        _check_revisions(entry.created, entry.modified)
    one = await store.get("runs/a")
    promise(one is None or one.key == "runs/a", "another entry than was asked for")


async def _write(store: EtcdStore) -> None:
    _check_revisions((await store.transact(Transaction((), (Put("runs/a", b""),)))).revision)


async def _lease(store: EtcdStore) -> None:
    lease = await store.grant(LEASE_S)
    promise(0 < lease.id <= I64_MAX, "a lease that cannot be")
    promise(LEASE_S <= lease.ttl_s <= LEAST_TTL_MAX_S, "a lease of a time that was not asked for")
    promise(0 < await store.keep_alive(lease.id) <= lease.ttl_s, "a renewal that is longer than the lease")
    promise(0 < await store.keep_alive(9) <= TTL_MAX_S, "a renewal for longer than any lease")
    await store.revoke(lease.id)


async def _watch(store: EtcdStore) -> None:
    async for changes in store.watch(PREFIX, 1):
        _check_revisions(changes.revision)
        promise(all(change.key.startswith(PREFIX) for change in changes.changes), "a change that was not asked for")


async def _look(store: EtcdStore) -> None:
    """What the doctor does."""
    member = await store._connection.member()
    with store._connection.errors_of(member):
        await member.methods.status(messages.StatusRequest())
        await member.methods.alarm(messages.AlarmRequest())
        await member.methods.members(messages.MemberListRequest())


def _check_revisions(*revisions: int) -> None:
    promise(all(0 <= revision <= REVISION_MAX for revision in revisions), "a revision that cannot be")


def _run(data: bytes) -> None:
    choice = data[0] if data else 0
    with asyncio.Runner() as runner:
        runner.run(_use(METHODS[choice % AS_ERROR % len(METHODS)], data[1:], is_error=choice >= AS_ERROR))


def _seeds() -> list[bytes]:
    header = messages.ResponseHeader(cluster_id=1, revision=10, raft_term=1)
    kv = messages.KeyValue(key=b"/holdfast/runs/a", value=b"value", create_revision=3, mod_revision=4, lease=7)
    event = messages.Event(kv=kv)
    gone = messages.Event(type=messages.Event.DELETE, kv=messages.KeyValue(key=kv.key, mod_revision=5))
    errors = (
        b"etcdserver: requested lease not found",
        b"etcdserver: request is too large",
        b"CLIENT: Received message larger than max (9 vs. 8)",
        b"last error: \x1b[2J",
    )
    return [
        *(bytes([place]) + _honest(method) for place, method in enumerate(METHODS)),
        _as_input("Range", messages.RangeResponse(header=header, kvs=[kv])),
        _as_input("Watch", messages.WatchResponse(header=header, events=[event, gone])),
        _as_input("Watch", messages.WatchResponse(header=header, canceled=True, cancel_reason="no reason")),
        _as_input("Watch", messages.WatchResponse(header=header, compact_revision=9)),
        *(bytes([AS_ERROR + place, place]) + text for place, text in enumerate(errors)),
    ]


def _records() -> st.SearchStrategy[bytes]:
    numbers = st.sampled_from((I64_MIN, -1, 0, 1, 5, 1 << 62, I64_MAX)) | st.integers(I64_MIN, I64_MAX)
    unsigned = st.integers(0, (1 << 64) - 1)
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=BYTES_MAX)
    keys = st.sampled_from((b"/holdfast/runs/a", b"/holdfast/runs/b", b"/holdfast/")) | st.binary(max_size=BYTES_MAX)
    header = st.builds(messages.ResponseHeader, cluster_id=st.just(1) | unsigned, revision=numbers, raft_term=unsigned)
    kvs = st.builds(
        messages.KeyValue, key=keys, value=st.binary(), create_revision=numbers, mod_revision=numbers, lease=numbers
    )
    events = st.builds(messages.Event, type=st.sampled_from((0, 1)), kv=kvs)
    fields: dict[str, dict[str, Any]] = {
        "Range": {"kvs": st.lists(kvs, max_size=6)},
        "Txn": {"succeeded": st.booleans()},
        "LeaseGrant": {"ID": numbers, "TTL": numbers},
        "LeaseKeepAlive": {"TTL": numbers},
        "Watch": {
            "canceled": st.booleans(),
            "compact_revision": st.just(0) | numbers,
            "cancel_reason": texts,
            "events": st.lists(events, max_size=6),
        },
        "Authenticate": {"token": texts},
        "Status": {"version": texts, "dbSize": numbers, "leader": unsigned},
    }
    inputs = [
        st.builds(_answer_of(method), header=header, **more).map(partial(_as_input, method))
        for method, more in fields.items()
    ]
    return st.one_of(inputs)


def _as_input(method: str, message: Any) -> bytes:
    return bytes([METHODS.index(method)]) + bytes(message.SerializeToString())


TARGETS = (Target("etcd", _run, _seeds, records=_records, memory_max_bytes=16 * MIB, short_runs=100),)
