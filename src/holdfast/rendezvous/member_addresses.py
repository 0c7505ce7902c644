"""The addresses that the workers of a node may come from: those of all its interfaces, and those its name resolves to.

A node publishes its interface addresses in its own record. Other nodes read them only when a connection to the workers'
store comes from an address that no member is known by. So machines with many interfaces cost nothing, and the record of
the generation, which every node receives, stays small.
"""

from __future__ import annotations

import asyncio
import socket
from struct import Struct
from typing import TYPE_CHECKING

from holdfast.netlink import ROUTE, Kernel, attributes
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.records import Node, agent_of, decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.coordination.model import Entry
    from holdfast.rendezvous.records import Member

ADDRESSES_MAX = 64
"""The number of its own addresses that a node publishes."""

NAME_MAX_S = 10.0
"""How long the resolution of a name may take."""

_GET_ADDRESSES = 22
_QUESTION = Struct("=B7x")
_FIXED_BYTES = 8
_ADDRESS, _LOCAL = 1, 2
_SCOPE_AT, _HOST_SCOPE = 3, 254
_FAMILIES = {4: socket.AF_INET, 16: socket.AF_INET6}


def interface_addresses() -> tuple[str, ...]:
    """This machine's addresses, without those of host scope such as loopback; none if the kernel does not answer."""
    try:
        kernel = Kernel(ROUTE)
    except OSError:
        return ()
    found: dict[str, None] = {}
    try:
        for answer in kernel.ask_all(_GET_ADDRESSES, _QUESTION.pack(socket.AF_UNSPEC)):
            told = dict(attributes(answer, _FIXED_BYTES))
            # On a point-to-point link, `_ADDRESS` is the address of the other machine.
            address = told.get(_LOCAL) or told.get(_ADDRESS, b"")
            if answer[_SCOPE_AT] != _HOST_SCOPE and len(address) in _FAMILIES:
                found[socket.inet_ntop(_FAMILIES[len(address)], address)] = None
    except OSError:
        return ()
    finally:
        kernel.close()
    return tuple(found)[:ADDRESSES_MAX]


async def addresses_of(members: Iterable[Member], nodes: Iterable[Entry]) -> set[str]:
    """All addresses that members are known by. `nodes` are the records of all nodes, members or not."""
    known = {agent_of(member.node): member.address for member in members}
    found = set(known.values())
    for entry in nodes:
        if agent_of(entry.key.rpartition("/")[2]) in known:
            try:
                found.update(decode(entry, Node).addresses[:ADDRESSES_MAX])
            except RendezvousStateError:
                continue  # the rendezvous reports it, and the member's other address counts
    for resolved in await asyncio.gather(*map(_resolved, set(known.values()))):
        found.update(resolved)
    return found


async def _resolved(host: str) -> list[str]:
    """The addresses that a name resolves to. An address resolves to itself."""
    try:
        async with asyncio.timeout(NAME_MAX_S):
            infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError, TimeoutError):  # an impossible name
        return []
    return [str(info[4][0]) for info in infos]
