"""Network addresses: which ones belong to this machine, and which ones other machines can reach."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from holdfast.coordination.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_own(address: str) -> bool:
    """Whether an IP address belongs to this machine: only such an address can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def own_addresses(host: str) -> list[str]:
    """The addresses of this machine that `host` resolves to; none if `host` is another machine, or unknown.

    If a name of this machine resolves to loopback (Debian writes that into /etc/hosts), the result is all addresses,
    "": other machines resolve the name to an address that we cannot know.
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
    """The host or address by which other machines can reach this one.

    `address` is our end of the connection to the store, which runs on `hosts`. The result is `address`, unless that is
    loopback because one of `hosts` is a name of this machine that resolves to loopback here. Then the result is the
    name: other machines resolve it differently.
    """
    if not is_loopback(address):
        return address
    return next((host for host in hosts if own_addresses(host) == [""]), address)


def bracketed(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
