"""Network access that several checks share: names, interfaces, routes, and connection attempts."""

from __future__ import annotations

import array
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import time
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.background import begin

RESOLVE_MAX_S = 4.0
"""How long a name look-up may take."""

CONNECT_MAX_S = 3.0
"""How long connecting may take. A lost packet is sent again after one second."""

VIRTUAL_NAMES = ("docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "podman", "lxc", "kube", "tailscale")
"""Name prefixes of interfaces that lead to containers and virtual machines, not to other machines."""

_SIOCGIFCONF = 0x8912
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 1
_IFREQ_BYTES = 40
_INTERFACES_MAX = 512


class Interface(NamedTuple):
    """An address of this machine, and its interface."""

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        return _ip(self.address).is_loopback

    @property
    def is_link_local(self) -> bool:
        return _ip(self.address).is_link_local

    @property
    def is_virtual(self) -> bool:
        return self.name.startswith(VIRTUAL_NAMES)


class Reach(StrEnum):
    """The result of a connection attempt."""

    CONNECTED = "connected"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    NO_ROUTE = "no route"
    UNKNOWN_NAME = "unknown name"
    OTHER = "other"


class Attempt(NamedTuple):
    """A connection attempt: the address, the result, the time it took, and the kernel's error text."""

    reach: Reach
    address: str = ""
    seconds: float = 0.0
    text: str = ""


def resolve(host: str) -> list[str]:
    """The addresses of a name, in the order in which they are tried.

    Raises:
        OSError: it has none.
    """
    return list(dict.fromkeys(str(info[4][0]) for info in _look_up(host, None, socket.SOCK_STREAM)))


def _look_up(host: str, port: int | None, kind: int) -> list[Any]:
    """Like `socket.getaddrinfo`, in bounded time: a look-up cannot be cancelled, so it is abandoned."""
    try:
        return begin(lambda: socket.getaddrinfo(host, port, type=kind)).result(RESOLVE_MAX_S)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"no name server answers within {RESOLVE_MAX_S:g} s") from None
    except UnicodeError as error:  # such as a label that is too long
        raise OSError(errno.EINVAL, str(error)) from None


def interfaces() -> list[Interface]:
    """The addresses of this machine whose interfaces are up."""
    return [*_interfaces4(), *_interfaces6()]


def source_address(host: str, port: int) -> str:
    """The local address of a connection to `host`; "" if there is no route."""
    with suppress(OSError):
        for family, kind, protocol, _, address in _look_up(host, port, socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing
                return str(probe.getsockname()[0])
    return ""


def connect(host: str, port: int, limit_s: float = CONNECT_MAX_S) -> Attempt:
    """Try each address of `host` in turn. Returns the first that answers, or the most telling failure."""
    try:
        infos = _look_up(host, port, socket.SOCK_STREAM)
    except OSError as error:
        return Attempt(Reach.UNKNOWN_NAME, text=error.strerror or str(error))
    failures = []
    for family, kind, protocol, _, address in infos:
        attempt = _connect(family, kind, protocol, address, limit_s / len(infos))
        if attempt.reach is Reach.CONNECTED:
            return attempt
        failures.append(attempt)
    # A refusal shows that the host is up. Among the rest, silence says more than a missing route.
    return min(failures, key=lambda failed: list(Reach).index(failed.reach))


def _connect(family: int, kind: int, protocol: int, address: Any, limit_s: float) -> Attempt:
    began = time.monotonic()
    shown = str(address[0])
    try:
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(limit_s)
            connection.connect(address)
            if connection.getsockname() == connection.getpeername():  # it connected to itself
                return Attempt(Reach.REFUSED, shown, text="nothing listens")
    except OSError as error:
        return Attempt(_reach(error), shown, time.monotonic() - began, error.strerror or str(error))
    return Attempt(Reach.CONNECTED, shown, time.monotonic() - began)


def _reach(error: OSError) -> Reach:
    if isinstance(error, ConnectionRefusedError):
        return Reach.REFUSED
    if isinstance(error, TimeoutError):
        return Reach.TIMEOUT
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EHOSTDOWN):
        return Reach.NO_ROUTE
    return Reach.OTHER


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(address.partition("%")[0])


def _interfaces4() -> list[Interface]:
    buffer = array.array("B", bytes(_IFREQ_BYTES * _INTERFACES_MAX))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        place, _ = buffer.buffer_info()
        asked = struct.pack("iL", len(buffer), place)
        filled, _ = struct.unpack("iL", fcntl.ioctl(probe, _SIOCGIFCONF, asked))
        found = []
        for begin in range(0, filled, _IFREQ_BYTES):
            request = buffer[begin : begin + _IFREQ_BYTES].tobytes()
            name = request[:16].partition(b"\0")[0].decode(errors="replace")
            flags = struct.unpack("16xH", fcntl.ioctl(probe, _SIOCGIFFLAGS, request[:32])[:18])[0]
            if flags & _IFF_UP:
                found.append(Interface(name, socket.inet_ntoa(request[20:24])))
    return found


def _interfaces6() -> list[Interface]:
    found = []
    with suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as file:
        for line in file:
            digits, _, _, _, _, name = line.split()
            found.append(Interface(name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))))
    return found


def hostname() -> str:
    return os.uname().nodename
