"""Host names: this machine's own, and those of the endpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.background import all_at_once
from holdfast.coordination.loopback import is_loopback
from holdfast.doctor.finding import Finding, Topic
from holdfast.doctor.network import hostname, resolve
from holdfast.rendezvous.addresses import is_own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.doctor.context import Context

SLOW_S = 1.0
"""A slower look-up is waiting for a name server that does not answer."""

HOSTS_FILE = "/etc/hosts"

_topic = Topic("names")


class Name(NamedTuple):
    """A name, and what it resolves to on this machine."""

    name: str
    addresses: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    """Those of its addresses that belong to this machine."""

    error: str = ""
    seconds: float = 0.0
    in_hosts_file: tuple[str, ...] = ()
    """The addresses that /etc/hosts has for it."""


def check(context: Context) -> list[Finding]:
    hosts = dict.fromkeys(host for host, _ in context.meeting.endpoints) if context.meeting else {}
    # Each may wait for a name server that does not answer.
    own, local, *places = all_at_once(look_up, (hostname(), "localhost", *hosts))
    findings = [judge_own(own, is_alone=all(map(is_loopback, hosts))), judge_localhost(local)]
    return [*findings, *(judge_endpoint(place, own.name) for place in places)]


def look_up(name: str) -> Name:
    began = time.monotonic()
    written = tuple(hosts_entries(name, _read(HOSTS_FILE)))
    try:
        addresses = resolve(name)
    except OSError as error:
        return Name(name, error=error.strerror or str(error), seconds=time.monotonic() - began, in_hosts_file=written)
    seconds = time.monotonic() - began
    return Name(name, tuple(addresses), tuple(filter(is_own, addresses)), "", seconds, written)


def hosts_entries(name: str, text: str) -> list[str]:
    """The addresses that the text of an /etc/hosts file has for a name."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [words[0] for words in lines if name.lower() in map(str.lower, words[1:])]


def judge_own(own: Name, *, is_alone: bool) -> Finding:
    name, shown = own.name, _shown(own.addresses)
    if own.error:
        return _topic.warning(
            "own-name",
            f"this machine cannot resolve its own name, {name!r}: {own.error}",
            f"gloo and other libraries look it up, and fail: add a line with this machine's address and {name} to "
            f"{HOSTS_FILE}, or to the name server",
        )
    if all(map(is_loopback, own.addresses)):
        return _judge_own_loopback(own, is_alone=is_alone)
    if not own.own:
        where = HOSTS_FILE if own.in_hosts_file else "the name server"
        return _topic.warning(
            "own-name",
            f"this machine's name, {name}, means {shown}, which is not an address of this machine",
            f"{where} is out of date or names another machine: correct it, or libraries that look up their own name "
            "tell others the wrong address",
        )
    return _slow(own, "own-name") or _topic.ok("own-name", f"this machine's name, {name}, means {shown}")


def _judge_own_loopback(own: Name, *, is_alone: bool) -> Finding:
    line = next((address for address in own.in_hosts_file if is_loopback(address)), "")
    cause = f" ({HOSTS_FILE} says so)" if line else ""
    what = f"this machine's name, {own.name}, means its loopback, {_shown(own.addresses)}{cause}"
    repair = f"replace {line} by the machine's address in {HOSTS_FILE}" if line else f"give {own.name} its address"
    if is_alone:
        return _topic.note("own-name", what, f"this breaks a job on several machines: {repair}")
    return _topic.warning(
        "own-name",
        what,
        "a library that looks up its own name (gloo does) tells other machines an address that they cannot reach: "
        f"{repair}, or set GLOO_SOCKET_IFNAME to the interface that leads to the others",
    )


def judge_localhost(local: Name) -> Finding:
    if local.error or not all(map(is_loopback, local.addresses)):
        said = local.error or f"means {_shown(local.addresses)}"
        return _topic.warning(
            "localhost",
            f"localhost: {said}",
            f"many programs take it for this machine: {HOSTS_FILE} should have the line 127.0.0.1 localhost",
        )
    return _topic.ok("localhost", f"localhost means {_shown(local.addresses)}")


def judge_endpoint(place: Name, own_name: str) -> Finding:
    name, shown = place.name, _shown(place.addresses)
    if place.error:
        return _topic.problem(
            "endpoint-name",
            f"the endpoint's name, {name!r}, is unknown here: {place.error}",
            f"check the spelling; add it to the name server or, on every machine, to {HOSTS_FILE}; or use the address "
            "instead",
        )
    if place.addresses == (name,) and not is_loopback(name):
        return _topic.ok("endpoint-name", f"the endpoint, {name}, is an address; no name to look up")
    if is_loopback(name):
        return _topic.note(
            "endpoint-name", f"the endpoint, {name}, means each machine itself: no other machine can join"
        )
    if all(map(is_loopback, place.addresses)):
        if name == own_name:
            return _topic.note(
                "endpoint-name",
                f"the endpoint's name, {name}, is this machine's own and means its loopback, {shown}",
                "the store is then served on all addresses of this machine; check on the other machines that they know "
                "the name",
            )
        return _topic.problem(
            "endpoint-name",
            f"the endpoint's name, {name}, means {shown} here, which is this machine",
            f"correct {HOSTS_FILE} on this machine; all machines must reach the same one",
        )
    slow = _slow(place, "endpoint-name")
    return slow or _topic.ok("endpoint-name", f"the endpoint's name, {name}, means {shown}")


def _slow(name: Name, check: str) -> Finding | None:
    if name.seconds < SLOW_S:
        return None
    return _topic.warning(
        check,
        f"to look up {name.name} took {name.seconds:.1f} s: {_shown(name.addresses)}",
        "a name server in /etc/resolv.conf does not answer; every worker that looks up a name waits as long",
    )


def _shown(addresses: Sequence[str]) -> str:
    return ", ".join(addresses)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
