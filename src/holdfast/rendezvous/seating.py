"""The members of the next generation and their order: a pure function of the nodes that are present."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.rendezvous.records import Node


def seat(previous: Iterable[str], nodes: Mapping[str, Node], ages: Mapping[str, int], max_nodes: int) -> list[str]:
    """The members of the next generation by rank, at most `max_nodes`; nodes without a place are spares.

    The nodes of `previous` come first, in the order of their ranks. Then come the others by age: the revision that
    created them. A node that asks for a rank gets it, unless there are too few nodes for it, or another node asks for
    the same rank and was nearer to it before, or is older. Nodes that ask for ranks are ordered by those ranks. So all
    nodes keep their ranks as long as none comes or goes.
    """
    before = {node: rank for rank, node in enumerate(previous)}
    survivors = [node for node in before if node in nodes]
    newcomers = sorted(nodes.keys() - set(survivors), key=lambda node: (ages[node], node))
    chosen = (survivors + newcomers)[:max_nodes]
    given: dict[int, str] = {}
    for node in chosen:
        rank = nodes[node].rank
        if rank >= 0 and (rank not in given or _distance(before, node, rank) < _distance(before, given[rank], rank)):
            given[rank] = node
    asking = deque(sorted(given.items()))
    askers = set(given.values())
    others = deque(node for node in chosen if node not in askers)
    seats: list[str] = []
    while asking or others:
        is_due = bool(asking) and (asking[0][0] <= len(seats) or not others)
        seats.append(asking.popleft()[1] if is_due else others.popleft())
    return seats


def holders(nodes: Mapping[str, Node], ages: Mapping[str, int]) -> dict[str, Node]:
    """The nodes that hold the rank they ask for. Of several that ask for the same rank, the oldest holds it."""
    held: dict[int, str] = {}
    for node in sorted(nodes, key=lambda node: (ages[node], node)):
        held.setdefault(nodes[node].rank, node)
    return {node: nodes[node] for node in held.values()}


def _distance(before: Mapping[str, int], node: str, rank: int) -> float:
    return abs(before[node] - rank) if node in before else float("inf")
