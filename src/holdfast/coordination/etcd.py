"""The etcd engine: for jobs that must survive the loss of any machine, and have an etcd cluster."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from itertools import groupby
from operator import attrgetter

from holdfast.coordination import etcd_messages as messages
from holdfast.coordination.errors import CompactedError, LeaseLostError, StoreRefusedError, StoreUnavailableError
from holdfast.coordination.etcd_answers import checked
from holdfast.coordination.etcd_connection import EtcdConnection
from holdfast.coordination.etcd_errors import OldTokenError, OtherClusterError, in_short
from holdfast.coordination.etcd_security import TlsFiles
from holdfast.coordination.keyspace import TTL_MAX_S, TTL_MIN_S
from holdfast.coordination.model import (
    Change,
    Changes,
    Created,
    Delete,
    Entry,
    Lease,
    Outcome,
    Put,
    Snapshot,
    check,
)
from holdfast.coordination.queued_watch import QueuedWatch
from holdfast.coordination.store import CoordinationStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TypeVar

    from holdfast.coordination.etcd_member import Member
    from holdfast.coordination.etcd_rpc import Methods, Unary
    from holdfast.coordination.model import Compare, Operation, Transaction
    from holdfast.coordination.store import Watch

    Request = TypeVar("Request")
    Response = TypeVar("Response")
    Answer = TypeVar("Answer", messages.RangeResponse, messages.TxnResponse)

DEFAULT_PREFIX = "/holdfast/"
"""The prefix of the keys of all jobs, in a cluster that other programs may share."""


class EtcdStore(CoordinationStore):
    """A client of an etcd cluster, version 3.4 or newer. It talks to one member, and to others when that one is slow.

    A transaction without an answer raises StoreUnavailableError and is not sent again. `answer_timeout_s` is how long
    any request may take; all other timeouts are shares of it. A caller with a lease sets it to a fraction of the lease.

    The connection uses TLS if certificates are given, and plain text otherwise. `ca_cert` is the CA to trust (by
    default the system's); `cert` and `cert_key` are our own certificate.

    Raises:
        InputError: a package is not installed, the settings contradict each other, or a password would be sent in plain
            text to another machine.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        *,
        user: str | None = None,
        password: str | None = None,
        ca_cert: str | None = None,
        cert: str | None = None,
        cert_key: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        answer_timeout_s: float = 3.0,
    ) -> None:
        self._connection = EtcdConnection(
            endpoints,
            None if user is None else (user, password or ""),
            TlsFiles(ca_cert, cert, cert_key) if ca_cert or cert or cert_key else None,
            answer_timeout_s,
        )
        self._space = _Space(prefix)
        self._revision = 0
        self._refusal = ""
        self._ttls_s: dict[int, float] = {}
        """The time to live of each lease that was granted here."""

        self._watches: set[_EtcdWatch] = set()

    async def get(self, key: str) -> Entry | None:
        answer = await self._ask_quorum(
            lambda methods: methods.range, messages.RangeRequest(key=self._space.key(key)), may_repeat=True
        )
        return self._space.entry(answer.kvs[0]) if answer.kvs else None

    async def get_prefix(self, prefix: str) -> Snapshot:
        first, end = self._space.range(prefix)
        answer = await self._ask_quorum(
            lambda methods: methods.range, messages.RangeRequest(key=first, range_end=end), may_repeat=True
        )
        return Snapshot(answer.header.revision, tuple(map(self._space.entry, answer.kvs)))

    async def transact(self, transaction: Transaction) -> Outcome:
        check(transaction)
        request = messages.TxnRequest(
            compare=map(self._as_compare, transaction.compares),
            success=map(self._as_operation, transaction.then),
            failure=map(self._as_operation, transaction.otherwise),
        )
        if not transaction.then and not transaction.otherwise:
            # For a transaction without operations, a member would answer from its own state, which may be old.
            read = messages.RangeRequest(key=self._space.key(""), count_only=True)
            request.success.append(messages.RequestOp(request_range=read))
        answer = await self._ask_quorum(lambda methods: methods.transact, request)
        return Outcome(answer.succeeded, answer.header.revision)

    async def grant(self, ttl_s: float) -> Lease:
        """A new lease, of whole seconds and at least etcd's own minimum of 2 s."""
        if not TTL_MIN_S <= ttl_s <= TTL_MAX_S:
            raise ValueError(f"a lease of {ttl_s} s: it can be {TTL_MIN_S} to {TTL_MAX_S:.0f} s")
        answer = await self._ask(lambda methods: methods.grant, messages.LeaseGrantRequest(TTL=math.ceil(ttl_s)))
        self._ttls_s[answer.ID] = float(answer.TTL)
        return Lease(answer.ID, float(answer.TTL))

    async def keep_alive(self, lease_id: int) -> float:
        request = messages.LeaseKeepAliveRequest(ID=lease_id)

        async def exchange(member: Member) -> Any:
            timeout_s, metadata = self._connection.answer_timeout_s, self._connection.metadata
            async for said in member.methods.keep_alive([request], timeout=timeout_s, metadata=metadata):
                answer = checked(request, said, member.name)
                # A paused leader still acts as leader for a moment. It does not know newer leases.
                if answer.header.raft_term < self._connection.term:
                    raise StoreUnavailableError(f"etcd at {member.name} sent an answer from before the last election")
                return answer
            raise StoreUnavailableError(f"etcd at {member.name} does not answer about a lease")

        if self._refusal:
            raise StoreRefusedError(self._refusal)
        answer = await self._connection.request(exchange, may_repeat=True)
        if answer.TTL <= 0:
            self._ttls_s.pop(lease_id, None)
            await self.get("lease")  # any read will do: it raises if etcd has lost more than this lease
            raise LeaseLostError(f"lease {lease_id} no longer exists")
        return min(float(answer.TTL), self._ttls_s.get(lease_id, TTL_MAX_S))

    async def revoke(self, lease_id: int) -> None:
        with suppress(LeaseLostError):
            request = messages.LeaseRevokeRequest(ID=lease_id)
            await self._ask(lambda methods: methods.revoke, request, may_repeat=True)
        self._ttls_s.pop(lease_id, None)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        watch = _EtcdWatch(self._connection, self._space, prefix, from_revision)
        self._watches.add(watch)
        watch.reading.add_done_callback(lambda _: self._watches.discard(watch))
        return watch

    async def close(self) -> None:
        watches = list(self._watches)
        for watch in watches:
            watch.close()
        if watches:
            await asyncio.wait([watch.reading for watch in watches])
        await self._connection.close()

    def local_address(self) -> str | None:
        return self._connection.local_address()

    async def _ask(
        self, method: Callable[[Methods], Unary[Request, Response]], request: Request, *, may_repeat: bool = False
    ) -> Response:
        connection = self._connection
        if self._refusal:
            raise StoreRefusedError(self._refusal)
        answer: Response = await connection.request(
            lambda member: method(member.methods)(
                request, timeout=connection.answer_timeout_s, metadata=connection.metadata
            ),
            may_repeat=may_repeat,
        )
        return answer

    async def _ask_quorum(
        self, method: Callable[[Methods], Unary[Request, Answer]], request: Request, *, may_repeat: bool = False
    ) -> Answer:
        """The answer to a read or a transaction, backed by a quorum of members.

        Raises:
            StoreRefusedError: the answer is older than what we have seen, so etcd has lost data.
        """
        seen = self._revision
        answer = await self._ask(method, request, may_repeat=may_repeat)
        revision = answer.header.revision
        if revision < seen:
            self._refusal = (
                f"etcd has lost data: it is at revision {revision} and was at {seen}; it was wiped or restored from a "
                "backup; start the job again with another --rdzv-id"
            )
            raise StoreRefusedError(self._refusal)
        self._revision = max(self._revision, revision)
        return answer

    def _as_compare(self, compare: Compare) -> messages.Compare:
        message = messages.Compare(key=self._space.key(compare.key), result=messages.Compare.EQUAL)
        if isinstance(compare, Created):
            message.target = messages.Compare.CREATE
            message.create_revision = compare.revision
        else:
            message.target = messages.Compare.MOD
            message.mod_revision = compare.revision
        return message

    def _as_operation(self, operation: Operation) -> messages.RequestOp:
        if isinstance(operation, Put):
            put = messages.PutRequest(key=self._space.key(operation.key), value=operation.value, lease=operation.lease)
            return messages.RequestOp(request_put=put)
        if isinstance(operation, Delete):
            delete = messages.DeleteRangeRequest(key=self._space.key(operation.key))
        else:
            first, end = self._space.range(operation.prefix)
            delete = messages.DeleteRangeRequest(key=first, range_end=end)
        return messages.RequestOp(request_delete_range=delete)


class _Space:
    """Our keys in etcd's key space: text after a prefix, as bytes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._prefix_bytes = len(prefix.encode())

    def key(self, key: str) -> bytes:
        return f"{self._prefix}{key}".encode(errors="surrogateescape")

    def range(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key with a prefix, and the first key after all keys with it."""
        first = self.key(prefix)
        trimmed = first.rstrip(b"\xff")
        if not trimmed:
            return first or b"\0", b"\0"  # etcd's notation for all keys that follow
        return first, trimmed[:-1] + bytes([trimmed[-1] + 1])

    def text(self, key: bytes) -> str:
        # Other programs may have put any bytes there; those keys can still be deleted.
        return key[self._prefix_bytes :].decode(errors="surrogateescape")

    def entry(self, stored: messages.KeyValue) -> Entry:
        return Entry(self.text(stored.key), stored.value, stored.create_revision, stored.mod_revision, stored.lease)

    def changes(self, events: Iterable[messages.Event]) -> Iterator[Changes]:
        """One batch per revision. etcd sends all events of a revision in one message, and messages in order."""
        for revision, group in groupby(events, key=attrgetter("kv.mod_revision")):
            changes = (
                Change(self.text(event.kv.key), self.entry(event.kv) if event.type == messages.Event.PUT else None)
                for event in group
            )
            yield Changes(revision, tuple(changes))


class _EtcdWatch(QueuedWatch):
    """A stream from one member. It does not move to another member: the reader has to read and watch again."""

    def __init__(self, connection: EtcdConnection, space: _Space, prefix: str, from_revision: int) -> None:
        super().__init__()
        self._connection = connection
        self._space = space
        first, end = space.range(prefix)
        create = messages.WatchCreateRequest(key=first, range_end=end, start_revision=max(1, from_revision))
        self._request = messages.WatchRequest(create_request=create)
        self.reading = asyncio.get_running_loop().create_task(self._read())

    def _end(self) -> None:
        if asyncio.current_task() is not self.reading:
            self.reading.cancel()

    async def _read(self) -> None:
        try:
            member = await self._connection.member()
            with self._connection.errors_of(member):
                await self._read_from(member)
        except (OldTokenError, OtherClusterError) as error:
            self.fail(StoreUnavailableError(str(error)))  # reading again gets a new token, or another member
        except Exception as error:  # noqa: BLE001 - the iterating caller gets it
            self.fail(error)

    async def _read_from(self, member: Member) -> None:
        call = member.methods.watch(metadata=self._connection.metadata)
        try:
            with self._connection.supervised(member):
                async with asyncio.timeout(self._connection.answer_timeout_s):
                    await call.write(self._request)
                    answer = await call.read()
            while self._is_wanted:
                self._take(answer, member)
                if self._is_wanted:
                    answer = await call.read()
        except TimeoutError:
            self.fail(StoreUnavailableError(f"etcd at {member.name} does not answer"))
        finally:
            call.cancel()

    def _take(self, answer: Any, member: Member) -> None:
        if answer is self._connection.end_of_stream:
            self.fail(StoreUnavailableError(f"etcd at {member.name} ended a watch"))
            return
        answer = checked(self._request, answer, member.name)
        self._connection.recognise(answer.header, member)
        if answer.compact_revision:
            self.fail(CompactedError(f"changes before revision {answer.compact_revision} are no longer kept"))
        elif answer.canceled:
            reason = in_short(answer.cancel_reason) or "without a reason"
            self.fail(StoreUnavailableError(f"etcd at {member.name} ended a watch: {reason}"))
        else:
            for changes in self._space.changes(answer.events):
                self.deliver(changes)
