"""Addresses: which are this machine's own, and which can be reached from no other."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from holdfast.coordination.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_own(address: str) -> bool:
    """Whether an IP address belongs to this machine: nothing else can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def own_addresses(host: str) -> list[str]:
    """The addresses of this machine that `host` stands for; none if it is another machine, or unknown.

    A name of this machine that resolves to its loopback (as Debian writes it into /etc/hosts) means all of
    its addresses, "": others resolve it to one that we cannot know.
    """
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return [""] if host == os.uname().nodename else []
    found = [address for address in dict.fromkeys(str(info[4][0]) for info in infos) if is_own(address)]
    if not is_loopback(host) and any(map(is_loopback, found)):
        return [""]
    return found


def told_to_others(address: str, hosts: Iterable[str]) -> str:
    """What others can reach this machine by, which reaches the store, at one of `hosts`, from `address`.

    That is the address, unless it is the loopback because one of `hosts` is a name of this machine that means it here:
    then it is the name, which means something else to others.
    """
    if not is_loopback(address):
        return address
    return next((host for host in hosts if own_addresses(host) == [""]), address)


def bracketed(host: str, port: int) -> str:
    """``host:port`` as people write it, also for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
