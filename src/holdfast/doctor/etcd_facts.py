"""The facts about an etcd cluster: each member over both interfaces, and a trial lease with a key."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.background import begin
from holdfast.coordination.errors import CoordinationError, StoreRefusedError
from holdfast.coordination.model import Put, Transaction
from holdfast.doctor.endpoint import ROUND_TRIPS
from holdfast.doctor.gateway import Answer, ask
from holdfast.doctor.network import CONNECT_MAX_S, Attempt, Reach, connect
from holdfast.errors.tree import InputError
from holdfast.rendezvous.addresses import bracketed
from holdfast.rendezvous.listener import speaks_tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.coordination.etcd_connection import EtcdConnection
    from holdfast.doctor.context import Meeting

T = TypeVar("T")

ANSWER_MAX_S = 2.0
"""How long each request to a member may take."""

MEMBER_MAX_S = 5.0
"""How long all requests to a member may take together."""

TRIAL_MAX_S = 4.0
"""How long the trial lease and its key may take."""

MEMBERS_MAX = 16
"""The number of endpoints that are checked."""

_ALARMS = {1: "NOSPACE", 2: "CORRUPT"}


class Status(NamedTuple):
    """What a member reports about itself over gRPC."""

    version: str
    leader: int
    cluster: int
    database_bytes: int
    members: int | None = None
    """The number of members of the cluster; None if unknown."""

    alarms: tuple[str, ...] = ()


class Member(NamedTuple):
    place: str
    attempt: Attempt
    health: Answer = Answer()
    version: Answer = Answer()
    status: Status | None = None
    error: str = ""
    """Why there is no status."""

    speaks_tls: bool = False
    """Whether the member speaks TLS. Checked only if there is no status."""


class Trial(NamedTuple):
    """A trial lease, and a key that it held for a moment."""

    error: str = ""
    is_refused: bool = False
    latency_s: float = 0.0


class Facts(NamedTuple):
    meeting: Meeting
    members: tuple[Member, ...]
    client_error: str = ""
    """Why this machine has no etcd client."""

    trial: Trial | None = None


def probe(meeting: Meeting) -> Facts:
    try:
        from holdfast.coordination.etcd_rpc import load_grpc

        load_grpc()
        tls = meeting.tls.client_context()
    except InputError as error:
        members = tuple(Member(bracketed(*endpoint), connect(*endpoint)) for endpoint in meeting.endpoints)
        return Facts(meeting, members, str(error))
    return asyncio.run(_probe(meeting, tls))


async def _probe(meeting: Meeting, tls: Any) -> Facts:
    endpoints = meeting.endpoints[:MEMBERS_MAX]
    members = await asyncio.gather(*(_member(meeting, endpoint, tls) for endpoint in endpoints))
    if not any(member.status for member in members):
        return Facts(meeting, tuple(members))
    return Facts(meeting, tuple(members), "", await _trial(meeting))


async def _member(meeting: Meeting, endpoint: tuple[str, int], tls: Any) -> Member:
    place = bracketed(*endpoint)
    attempt = await _in_background(lambda: connect(*endpoint, CONNECT_MAX_S))
    if attempt.reach is not Reach.CONNECTED:
        return Member(place, attempt)
    health, version, status = await asyncio.gather(
        _in_background(lambda: ask(*endpoint, "/health", tls)),
        _in_background(lambda: ask(*endpoint, "/version", tls)),
        _status(meeting, endpoint),
    )
    member = Member(place, attempt, health, version, *status)
    if member.status is None:
        return member._replace(speaks_tls=await _in_background(lambda: speaks_tls(*endpoint)))
    return member


async def _in_background(call: Callable[[], T]) -> T:
    return await asyncio.wrap_future(begin(call))


async def _status(meeting: Meeting, endpoint: tuple[str, int]) -> tuple[Status | None, str]:
    from holdfast.coordination.etcd_connection import EtcdConnection
    from holdfast.coordination.etcd_security import TlsFiles

    credentials = None if meeting.user is None else (meeting.user, meeting.password or "")
    try:
        files = TlsFiles(*meeting.tls) if meeting.tls else None
        connection = EtcdConnection([endpoint], credentials, files, ANSWER_MAX_S)
    except InputError as error:
        return None, str(error)
    try:
        async with asyncio.timeout(MEMBER_MAX_S):
            return await _read_status(connection), ""
    except (CoordinationError, ValueError) as error:
        return None, str(error)
    except TimeoutError:
        return None, f"no answer by gRPC within {MEMBER_MAX_S:g} s"
    finally:
        await connection.close()


async def _read_status(connection: EtcdConnection) -> Status:
    from holdfast.coordination import etcd_messages as messages
    from holdfast.coordination.etcd_errors import in_short

    member = await connection.member()
    timeout_s, metadata = ANSWER_MAX_S, connection.metadata
    with connection.errors_of(member):
        said = await member.methods.status(messages.StatusRequest(), timeout=timeout_s, metadata=metadata)
    alarms: tuple[str, ...] = ()
    members = None
    # etcd's permissions decide who may read these.
    with suppress(CoordinationError, ValueError):
        with connection.errors_of(member):
            told = await member.methods.alarm(messages.AlarmRequest(), timeout=timeout_s, metadata=metadata)
        alarms = tuple(_ALARMS.get(one.alarm, str(one.alarm)) for one in told.alarms[:MEMBERS_MAX])
    with suppress(CoordinationError, ValueError):
        with connection.errors_of(member):
            listed = await member.methods.members(messages.MemberListRequest(), timeout=timeout_s, metadata=metadata)
        members = len(listed.members)
    return Status(in_short(said.version), said.leader, said.header.cluster_id, said.dbSize, members, alarms)


async def _trial(meeting: Meeting) -> Trial:
    from holdfast.coordination.etcd import EtcdStore

    store = EtcdStore(
        meeting.endpoints,
        user=meeting.user,
        password=meeting.password,
        ca_cert=meeting.tls.ca_cert,
        cert=meeting.tls.cert,
        cert_key=meeting.tls.cert_key,
        prefix=meeting.prefix,
        answer_timeout_s=ANSWER_MAX_S,
    )
    key, value = f"doctor/{os.urandom(8).hex()}", b"holdfast doctor"
    try:
        async with asyncio.timeout(TRIAL_MAX_S):
            lease = await store.grant(meeting.ttl_s)
            try:
                await store.transact(Transaction((), (Put(key, value, lease.id),)))
                entry = await store.get(key)
                if entry is None or entry.value != value:
                    return Trial("a key that was written is not there")
                times = []
                for _ in range(ROUND_TRIPS):
                    began = time.monotonic()
                    await store.keep_alive(lease.id)
                    times.append(time.monotonic() - began)
            finally:
                with suppress(CoordinationError):
                    await store.revoke(lease.id)
        return Trial(latency_s=statistics.median(times))
    except StoreRefusedError as error:
        return Trial(str(error), is_refused=True)
    except (CoordinationError, ValueError) as error:
        return Trial(str(error))
    except TimeoutError:
        return Trial(f"no answer within {TRIAL_MAX_S:g} s")
    finally:
        await store.close()
