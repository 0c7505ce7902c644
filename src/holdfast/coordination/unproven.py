"""Connections that have not proved themselves: how long each may take, who has to go when there are too many, and whose
turn it is.

The one that goes is the oldest of whoever has the most. So a flood from one machine pushes out its own connections, and
not those of machines that come to join. Sources take turns: a machine that comes to join waits for one connection of
each other source, and not for all of a flood.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")

_GROUPS_OF_A_NETWORK = 4
"""A machine may have all IPv6 addresses that share the first four groups (64 bits), so it counts by those."""


class Unproven(Generic[C]):
    """Connections in the order of their arrival, each with its source and a deadline."""

    def __init__(self) -> None:
        self._all: dict[C, tuple[str, float]] = {}
        self._of: dict[str, dict[C, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, connection: C) -> bool:
        return connection in self._all

    def add(self, connection: C, source: str, deadline: float) -> None:
        """Deadlines are given in ascending order."""
        self._all[connection] = (source, deadline)
        group = self._of.setdefault(source, {})
        group[connection] = None
        self._resize(source, len(group) - 1, len(group))

    def remove(self, connection: C) -> None:
        """Forget a connection; nothing happens if it is not here."""
        source, _ = self._all.pop(connection, ("", 0.0))
        group = self._of.get(source, {})
        if connection in group:
            del group[connection]
            self._resize(source, len(group) + 1, len(group))

    def surplus(self) -> C | None:
        """The one that goes when there are too many."""
        if not self._all:
            return None
        source = next(iter(self._by_size[self._largest]))
        return next(iter(self._of[source]))

    def late(self, now: float) -> Iterator[C]:
        """Those whose time is over; they may be removed meanwhile."""
        for connection, (_, deadline) in list(self._all.items()):
            if deadline > now:
                return
            yield connection

    def next_deadline(self) -> float | None:
        return next((deadline for _, deadline in self._all.values()), None)

    def _resize(self, source: str, before: int, after: int) -> None:
        """`after` differs from `before` by one, so the largest size does, too, if at all."""
        if before:
            del self._by_size[before][source]
            if not self._by_size[before]:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[source] = None
        else:
            del self._of[source]
        self._largest = max(self._largest, after) if after > before or self._largest in self._by_size else after


class Turns(Generic[C]):
    """Connections that wait for their turn, each with what it sent. Sources take turns."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, dict[C, bytes]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: C, source: str, data: bytes) -> None:
        """A connection waits for one turn at a time."""
        self._of.setdefault(source, {})[connection] = data
        self._count += 1

    def remove(self, connection: C, source: str) -> None:
        """It is gone; nothing happens if it does not wait."""
        group = self._of.get(source, {})
        if group.pop(connection, None) is not None:
            self._count -= 1
            if not group:
                del self._of[source]

    def take(self) -> tuple[C, bytes]:
        """The next one: the oldest of the source that has waited for longest. Only if there is any."""
        source, group = self._of.popitem(last=False)
        connection = next(iter(group))
        data = group.pop(connection)
        self._count -= 1
        if group:
            self._of[source] = group
        return connection, data


def source_of(address: str) -> str:
    """Whom an address counts for: a machine, or for IPv6 the network that may be all one machine's."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address

    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(parsed.exploded.split(":")[:_GROUPS_OF_A_NETWORK])
