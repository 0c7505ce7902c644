"""The address that this machine would give to other machines: MASTER_ADDR, if it has rank 0."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.coordination.loopback import is_loopback
from holdfast.doctor.finding import Finding, Topic
from holdfast.doctor.network import Interface, interfaces, resolve, source_address
from holdfast.rendezvous.addresses import is_own, told_to_others
from holdfast.rendezvous.static import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.doctor.context import Context

SELF_MAX_S = 2.0
"""How long this machine may take to reach itself."""

LIBRARY_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")

_topic = Topic("address")


class Facts(NamedTuple):
    """The facts about the address."""

    advertised: str
    """The address that other machines get; "" if there is no route to the endpoint."""

    is_given: bool
    """Whether a person set it with --local-addr."""

    resolved: tuple[str, ...]
    """The addresses that it resolves to, if it is a name; "" stands for none."""

    endpoint: str
    """The endpoint's host; "" for a job of one machine."""

    interfaces: tuple[Interface, ...]
    variables: tuple[str, ...] = ()
    """Those of `LIBRARY_VARIABLES` that are set."""


class SelfReach(NamedTuple):
    """Whether a port of the address can be bound and reached from this machine."""

    address: str
    error: str = ""
    is_bind: bool = False
    seconds: float = 0.0


def check(context: Context) -> list[Finding]:
    facts = probe(context)
    findings = judge(facts)
    if facts.advertised:
        address = facts.resolved[0] if facts.resolved else facts.advertised
        if is_own(address):
            findings.append(judge_port(reach_self(address)))
    return findings


def probe(context: Context) -> Facts:
    meeting = context.meeting
    host, port = meeting.endpoints[0] if meeting else ("", 0)
    advertised = context.local_addr or LOOPBACK
    if meeting and not context.local_addr:
        advertised = told_to_others(source_address(host, port), [host for host, _ in meeting.endpoints])
    resolved: tuple[str, ...] = ()
    if context.local_addr or advertised == host:
        try:
            resolved = tuple(resolve(advertised))
        except OSError:
            resolved = ()
    variables = tuple(name for name in LIBRARY_VARIABLES if context.environ.get(name))
    return Facts(advertised, bool(context.local_addr), resolved, host, tuple(interfaces()), variables)


def judge(facts: Facts) -> list[Finding]:
    return [judge_advertised(facts), judge_interfaces(facts)]


def judge_advertised(facts: Facts) -> Finding:
    address = facts.advertised
    if facts.is_given:
        return _judge_given(facts)
    if not facts.endpoint:
        return _topic.ok("advertised", f"a job on this machine alone uses {address}; for several, give --endpoint")
    if not address:
        return _topic.skipped(
            "advertised", f"no route to the endpoint, {facts.endpoint}; MASTER_ADDR is the address that reaches it"
        )
    told = f"others would be told {address}{_at(facts)} as MASTER_ADDR"
    if is_loopback(facts.endpoint):
        return _topic.note("advertised", f"{told}: with this endpoint, all workers run on this machine")
    return _judge_found(facts, told)


def _judge_found(facts: Facts, told: str) -> Finding:
    if facts.resolved and all(map(is_loopback, facts.resolved)):
        return _topic.warning(
            "advertised",
            f"{told}, since that name means the loopback here; libraries in the workers may tell others the loopback",
            f"correct {facts.endpoint} in /etc/hosts, or give --local-addr on this machine{_suggested(facts)}",
        )
    interface = _interface(facts)
    if interface is not None and interface.is_virtual:
        return _topic.warning(
            "advertised",
            f"{told}, which leads to containers or virtual machines of this machine",
            f"if others cannot reach it, give --local-addr{_suggested(facts)}",
        )
    if interface is not None and interface.is_link_local:
        return _topic.warning(
            "advertised",
            f"{told}, which is valid on one link only",
            f"give the machines addresses of a common network, or --local-addr{_suggested(facts)}",
        )
    return _topic.ok("advertised", f"{told}, the address that reaches the endpoint")


def judge_interfaces(facts: Facts) -> Finding:
    """Whether libraries have several interfaces to choose from."""
    usable = [one for one in facts.interfaces if not (one.is_loopback or one.is_virtual or one.is_link_local)]
    names = list(dict.fromkeys(one.name for one in usable))
    listed = ", ".join(f"{one.name} {one.address}" for one in usable)
    if not names:
        return _topic.note("interfaces", "only the loopback is up: no other machine can take part in a job")
    unset = [name for name in LIBRARY_VARIABLES if name not in facts.variables]
    if len(names) == 1 or not unset:
        return _topic.ok("interfaces", f"up: {listed}")
    chosen = _interface(facts)
    name = chosen.name if chosen is not None and chosen.name in names else names[0]
    return _topic.note(
        "interfaces",
        f"several networks are up: {listed}",
        f"libraries in the workers choose one themselves; set {' '.join(f'{one}={name}' for one in unset)} to choose "
        "(--local-addr only sets MASTER_ADDR)",
    )


def judge_port(reached: SelfReach) -> Finding:
    place = f"a free port of {reached.address}"
    if not reached.error:
        return _topic.ok("master-port", f"{place} works: this machine can listen on it and reach it")
    if reached.is_bind:
        return _topic.problem(
            "master-port",
            f"{place} cannot be listened on: {reached.error}",
            "MASTER_PORT is such a port; see net.ipv4.ip_local_port_range and what uses ports (ss -tan)",
        )
    return _topic.problem(
        "master-port",
        f"{place} cannot be reached even from this machine: {reached.error}",
        "a firewall of this machine drops it (nft list ruleset, iptables -S): allow all ports between the machines of "
        "the job, since MASTER_PORT is any free port",
    )


def reach_self(address: str) -> SelfReach:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    began = time.monotonic()
    with socket.socket(family, socket.SOCK_STREAM) as listener, socket.socket(family, socket.SOCK_STREAM) as caller:
        try:
            listener.bind((address, 0))
            listener.listen(1)
        except OSError as error:
            return SelfReach(address, error.strerror or str(error), is_bind=True)
        caller.settimeout(SELF_MAX_S)
        try:
            caller.connect(listener.getsockname())
        except TimeoutError:
            return SelfReach(address, f"no answer within {SELF_MAX_S:g} s")
        except OSError as error:
            return SelfReach(address, error.strerror or str(error))
    return SelfReach(address, seconds=time.monotonic() - began)


def _judge_given(facts: Facts) -> Finding:
    given = facts.advertised
    if not facts.resolved:
        return _topic.problem(
            "advertised", f"--local-addr {given}: unknown host name", "write an address of this machine"
        )
    if all(map(is_loopback, facts.resolved)) and facts.endpoint and not is_loopback(facts.endpoint):
        return _topic.problem(
            "advertised",
            f"--local-addr {given}: this is the loopback, which no other machine can reach",
            f"write another{_suggested(facts)}",
        )
    own = {one.address for one in facts.interfaces}
    if not own & set(facts.resolved) and not all(map(is_loopback, facts.resolved)):
        return _topic.warning(
            "advertised",
            f"--local-addr {given}: no interface of this machine has it",
            "this is right only with NAT"
            + (f"; otherwise write another{_suggested(facts)}" if _suggested(facts) else ""),
        )
    return _topic.ok("advertised", f"others would be told {given} as MASTER_ADDR (--local-addr)")


def _interface(facts: Facts) -> Interface | None:
    addresses = {facts.advertised, *facts.resolved}
    return next((one for one in facts.interfaces if one.address in addresses), None)


def _at(facts: Facts) -> str:
    interface = _interface(facts)
    return f" ({interface.name})" if interface is not None else ""


def _suggested(facts: Facts) -> str:
    """Addresses that a person may want."""
    good: Sequence[Interface] = [
        one for one in facts.interfaces if not (one.is_loopback or one.is_virtual or one.is_link_local)
    ]
    return f", such as {good[0].address} ({good[0].name})" if good else ""
