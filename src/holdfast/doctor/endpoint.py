"""The endpoint of ``--rdzv-backend c10d``: whether it can be reached, and what listens there."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.coordination.errors import CoordinationError, StoreRefusedError
from holdfast.doctor.finding import Finding, Topic
from holdfast.doctor.network import Attempt, Reach, connect
from holdfast.errors.tree import InputError
from holdfast.rendezvous.addresses import bracketed, own_addresses
from holdfast.rendezvous.listener import Kind, Listener, identify

if TYPE_CHECKING:
    from holdfast.doctor.context import Context, Meeting

HANDSHAKE_MAX_S = 3.0
"""How long the store may take for the handshake and the first answer."""

ROUND_TRIPS = 5
"""The number of round trips that the median latency is taken from."""

LATENCY_PART_MAX = 0.25
"""An answer that takes a larger share of the keep-alive interval leaves little time for a late one."""

_topic = Topic("endpoint")


class Outcome(StrEnum):
    """The result of an introduction to the store."""

    NOT_TRIED = "not tried"
    PROVED = "proved"
    REFUSED = "refused"
    FAILED = "failed"


class Introduction(NamedTuple):
    outcome: Outcome = Outcome.NOT_TRIED
    text: str = ""
    latency_s: float = 0.0


class Facts(NamedTuple):
    """The facts about an endpoint."""

    meeting: Meeting
    attempt: Attempt
    is_here: bool = False
    """Whether the endpoint is this machine: then this machine serves the store."""

    bind_error: str = ""
    """Why the port cannot be bound, if the endpoint is this machine and nothing listens there."""

    introduction: Introduction = Introduction()
    listener: Listener | None = None


def check(context: Context) -> list[Finding]:
    meeting = context.meeting
    if meeting is None:
        return [_topic.skipped("reachable", "no --endpoint given: not checked")]
    findings = judge_settings(meeting)
    if meeting.is_topic(_topic.name):
        findings += judge(probe(meeting))
    return findings


def probe(meeting: Meeting) -> Facts:
    (host, port), *_ = meeting.endpoints
    attempt = connect(host, port)
    own = own_addresses(host) if attempt.reach is not Reach.UNKNOWN_NAME else []
    is_here = bool(own or meeting.is_host) and meeting.is_host is not False
    facts = Facts(meeting, attempt, is_here)
    if attempt.reach is not Reach.CONNECTED:
        return facts._replace(bind_error=_bind_error(own or [""], port)) if is_here else facts
    listener = identify(host, port)
    introduction = Introduction()
    if not meeting.complaint and listener.kind is Kind.HOLDFAST:
        introduction = asyncio.run(introduce(meeting))
    return facts._replace(introduction=introduction, listener=listener)


async def introduce(meeting: Meeting) -> Introduction:
    """Prove ourselves to the store as an agent does, and send a request."""
    from holdfast.coordination.client import EmbeddedStore
    from holdfast.coordination.tls import for_client

    (host, port), *_ = meeting.endpoints
    try:
        tls = for_client(meeting.tls.whole(), is_local=meeting.is_local)
        store = EmbeddedStore(
            host,
            port,
            token=meeting.token,
            tls=tls,
            users=meeting.users,
            connect_timeout_s=HANDSHAKE_MAX_S,
            answer_timeout_s=HANDSHAKE_MAX_S,
        )
    except InputError as error:
        return Introduction(Outcome.REFUSED, str(error))
    try:
        async with asyncio.timeout(HANDSHAKE_MAX_S + 1):
            await store.get("doctor")
            times = []
            for _ in range(ROUND_TRIPS):
                began = time.monotonic()
                await store.get("doctor")
                times.append(time.monotonic() - began)
    except StoreRefusedError as error:
        return Introduction(Outcome.REFUSED, str(error))
    except (CoordinationError, TimeoutError) as error:
        return Introduction(Outcome.FAILED, str(error) or "no answer")
    else:
        return Introduction(Outcome.PROVED, latency_s=statistics.median(times))
    finally:
        with suppress(CoordinationError):
            await store.close()


def _bind_error(addresses: list[str], port: int) -> str:
    """Why the store could not be served at a port; "" if it could."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
                probe.listen(1)
            except OSError as error:
                return error.strerror or str(error)
    return ""


# Judgement


def judge_settings(meeting: Meeting) -> list[Finding]:
    if not meeting.complaint:
        return []
    what, _, advice = meeting.complaint.partition("; ")
    return [_topic.problem("settings", what, advice or "holdfast run would say the same, and exit with 2")]


def judge(facts: Facts) -> list[Finding]:
    place = bracketed(*facts.meeting.endpoints[0])
    if facts.attempt.reach is not Reach.CONNECTED:
        return [_judge_closed(facts, place)]
    reached = _topic.ok("reachable", f"{place} is reached in {_milliseconds(facts.attempt.seconds)}")
    return [reached, *_judge_store(facts, place)]


def _judge_closed(facts: Facts, place: str) -> Finding:
    attempt = facts.attempt
    if attempt.reach is Reach.UNKNOWN_NAME:
        return _topic.skipped("reachable", f"{place} was not tried: unknown host name")
    if facts.is_here and attempt.reach is not Reach.TIMEOUT:
        return _judge_here(facts, place)
    if attempt.reach is Reach.REFUSED:
        return _topic.note(
            "reachable",
            f"{place} answers, but nothing listens on the port",
            "this is expected before the job starts there. If it has started, it uses another port or address, or a "
            "firewall refuses the connection",
        )
    return _judge_lost(attempt, place, facts.meeting.endpoints[0][1])


def _judge_here(facts: Facts, place: str) -> Finding:
    port = facts.meeting.endpoints[0][1]
    if facts.bind_error:
        return _topic.problem(
            "reachable",
            f"{place} is this machine, which cannot listen there: {facts.bind_error}",
            f"stop what uses the port (ss -tlnp 'sport = :{port}'), or choose another; ports below 1024 need root",
        )
    return _topic.ok(
        "reachable", f"{place} is this machine, and the port is free: the agent here would serve the store"
    )


def _judge_lost(attempt: Attempt, place: str, port: int) -> Finding:
    if attempt.reach is Reach.TIMEOUT:
        return _topic.problem(
            "reachable",
            f"{place} does not answer within {attempt.seconds:.0f} s ({attempt.address}): packets are lost on the way",
            f"check that the machine is up and the address is right; open port {port} and the workers' ports in the "
            "firewall or security group, in both directions",
        )
    if attempt.reach is Reach.NO_ROUTE:
        return _topic.problem(
            "reachable",
            f"no route to {place}: {attempt.text} ({attempt.address})",
            f"the machine is off, the address is wrong, or this machine is in another network (ip route get "
            f"{attempt.address})",
        )
    return _topic.problem(
        "reachable", f"{place} cannot be connected to: {attempt.text}", "check ip route and the firewall"
    )


def _judge_store(facts: Facts, place: str) -> list[Finding]:
    meeting, introduction = facts.meeting, facts.introduction
    if introduction.outcome is Outcome.PROVED:
        served = _topic.ok("store", f"a holdfast store runs there and accepts this token{_with_tls(meeting)}")
        return [served, judge_latency(introduction.latency_s, meeting)]
    stranger = _judge_stranger(facts, place)
    if stranger is not None:
        return [stranger]
    if introduction.outcome is Outcome.NOT_TRIED:
        return [_topic.skipped("store", "a holdfast store runs there; not tried, because the settings are wrong")]
    what, advice = introduction.text, "holdfast run would say the same"
    if "token" in what:
        what, _, advice = what.partition("; ")
        compare = 'sha256sum TOKEN_FILE, or printf %s "$HOLDFAST_TOKEN" | sha256sum'
        advice += f". To compare tokens without showing them: {compare}"
    elif "store_users" in what:
        what, _, advice = what.partition("; ")
    elif "version" in what or "speak TLS" in what:
        what, _, advice = what.partition(": ")
    elif "no TLS" in what:
        advice = (
            "check that one authority (ca_cert) has signed the certificates of all machines, that they name the host "
            "in the endpoint, and that they are still valid (openssl x509 -noout -text -in FILE)"
        )
    elif introduction.outcome is Outcome.FAILED:
        advice = "the agent that serves it may be stopped, or its machine overloaded: run holdfast stacks there"
    return [_topic.problem("store", what, advice)]


def _judge_stranger(facts: Facts, place: str) -> Finding | None:
    """A finding if something other than holdfast's store listens there."""
    listener = facts.listener
    if listener is None or listener.kind is Kind.HOLDFAST:
        return None
    other_port = "choose another port for this job, the same on all machines"
    what, advice = {
        Kind.TORCH: (
            "a torch store listens there: a job of torchrun, or the workers' store (MASTER_PORT) of another job",
            f"machines with torchrun and with holdfast cannot meet: start holdfast on all of them, or {other_port}",
        ),
        Kind.ETCD: (
            "etcd listens there",
            "write --rdzv-backend etcd (here: --backend etcd), or " + other_port,
        ),
        Kind.TLS: ("something that speaks only TLS listens there", other_port),
        Kind.HTTP: (f"a web server listens there: {listener.said}", other_port),
        Kind.OTHER: (f"something else listens there: it says {listener.said!r}", other_port),
        Kind.SILENT: (
            "something listens there and says nothing",
            f"if it is an agent, it is stopped (kill -CONT it), or its machine is overloaded; otherwise {other_port}",
        ),
    }[listener.kind]
    return _topic.problem("store", f"{place} is not a holdfast store: {what}", advice)


def judge_latency(latency_s: float, meeting: Meeting, topic: Topic = _topic) -> Finding:
    took = f"an answer takes {_milliseconds(latency_s)} (median of {ROUND_TRIPS})"
    if latency_s > LATENCY_PART_MAX * meeting.keep_alive_s:
        return topic.warning(
            "latency",
            f"{took}; each machine sends a heartbeat every {meeting.keep_alive_s:g} s and counts as lost after "
            f"{meeting.ttl_s:g} s",
            "raise keep_alive_interval in --rdzv-conf, on all machines, or bring the store nearer",
        )
    return topic.ok("latency", f"{took}; a machine counts as lost after {meeting.ttl_s:g} s of silence")


def _with_tls(meeting: Meeting) -> str:
    return ", over TLS" if meeting.tls or not meeting.is_local else ""


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
