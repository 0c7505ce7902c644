"""Connections that have not proved themselves: their deadlines, which one to drop when there are too many, and their
turns.

The server drops the oldest connection of the source that has the most, within the stage that has the most. So a flood
from one machine drops that machine's own connections. A flood from many machines drops connections that are in the
same stage as the flood, and none that have come further. Sources take turns. If more connections arrive than the server
can serve, a queue would make all of them wait until they give up. So the server serves the newest first, and the others
connect again.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")

_GROUPS_OF_A_NETWORK = 4
"""A machine may have all IPv6 addresses that share the first four groups (64 bits), so it counts by those."""


class Stage(IntEnum):
    """How far a connection without proof has come."""

    ARRIVED = 0
    """It may have sent something, and that waits for its turn."""

    BEGUN = 1
    """It has a TLS session: its first message was served."""

    CONTINUED = 2
    """It has sent more since then, so there is somebody who takes part in the handshake."""


class Unproven(Generic[C]):
    """Connections in the order of their arrival, each with its source, its stage and a deadline."""

    def __init__(self) -> None:
        self._all: dict[C, tuple[str, float, Stage]] = {}
        self._stages: dict[Stage, _Crowd[C]] = {stage: _Crowd() for stage in Stage}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, connection: C) -> bool:
        return connection in self._all

    def count(self, *stages: Stage) -> int:
        return sum(len(self._stages[stage]) for stage in stages)

    def add(self, connection: C, source: str, deadline: float) -> None:
        """Add a connection. Deadlines must come in ascending order."""
        self._all[connection] = (source, deadline, Stage.ARRIVED)
        self._stages[Stage.ARRIVED].add(connection, source)

    def advance(self, connection: C, stage: Stage) -> None:
        """Move a connection to this stage. Does nothing if it is unknown, or has come as far already."""
        source, deadline, before = self._all.get(connection, ("", 0.0, stage))
        if before < stage:
            self._stages[before].remove(connection, source)
            self._stages[stage].add(connection, source)
            self._all[connection] = (source, deadline, stage)

    def remove(self, connection: C) -> None:
        """Forget a connection. Does nothing if it is unknown."""
        if connection in self._all:
            source, _, stage = self._all.pop(connection)
            self._stages[stage].remove(connection, source)

    def surplus(self, *stages: Stage) -> C | None:
        """The connection to drop when there are too many in these stages (in all stages without arguments).

        It is in the stage that has the most, or in the earlier one of two that have as many.
        """
        return max((self._stages[stage] for stage in stages or Stage), key=len).surplus()

    def late(self, now: float) -> Iterator[C]:
        """The connections whose deadline has passed. The caller may remove them meanwhile."""
        for connection, (_, deadline, _) in list(self._all.items()):
            if deadline > now:
                return
            yield connection

    def next_deadline(self) -> float | None:
        return next((deadline for _, deadline, _ in self._all.values()), None)


class _Crowd(Generic[C]):
    """The connections of one stage, by source."""

    def __init__(self) -> None:
        self._of: dict[str, dict[C, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: C, source: str) -> None:
        group = self._of.setdefault(source, {})
        group[connection] = None
        self._count += 1
        self._resize(source, len(group) - 1, len(group))

    def remove(self, connection: C, source: str) -> None:
        group = self._of[source]
        del group[connection]
        self._count -= 1
        self._resize(source, len(group) + 1, len(group))

    def surplus(self) -> C | None:
        """The oldest connection of the source that has the most."""
        if not self._count:
            return None
        source = next(iter(self._by_size[self._largest]))
        return next(iter(self._of[source]))

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
    """Connections that wait for their turn, each with what it sent. Sources take turns.

    Args:
        newest_first: the newest source goes first, with its newest connection, and then to the end if it has more.
            Otherwise the source that has waited longest goes first. Use this only for messages that a connection sends
            once: a client that sends little again and again would always be the newest.
    """

    def __init__(self, *, newest_first: bool = False) -> None:
        self._newest_first = newest_first
        self._of: OrderedDict[str, OrderedDict[C, bytes]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: C, source: str, data: bytes) -> None:
        """Let a connection wait for a turn. It may wait for one turn at a time only."""
        self._of.setdefault(source, OrderedDict())[connection] = data
        self._count += 1

    def remove(self, connection: C, source: str) -> None:
        """Forget a connection. Does nothing if it does not wait."""
        group = self._of.get(source)
        if group is not None and group.pop(connection, None) is not None:
            self._count -= 1
            if not group:
                del self._of[source]

    def take(self) -> tuple[C, bytes]:
        """Remove and return the next connection with its data. There must be one."""
        source, group = self._of.popitem(last=self._newest_first)
        taken = group.popitem(last=self._newest_first)
        self._count -= 1
        if group:
            self._of[source] = group
            self._of.move_to_end(source, last=not self._newest_first)
        return taken


def source_of(address: str) -> str:
    """The source that an address counts for: a machine, or for IPv6 a network that may belong to one machine."""
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
