"""Who is in the next generation, and in which order: a pure function of who is there."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.rendezvous.records import Node


def seat(previous: Iterable[str], nodes: Mapping[str, Node], ages: Mapping[str, int], max_nodes: int) -> list[str]:
    """The members of the next generation by rank, at most `max_nodes`; who finds no place is a spare.

    Those of `previous`, in the order of their ranks, come before the others, who come by age: the revision that created
    them. A node that asks for a rank gets it, unless one before it asks for the same or there are too few nodes for it;
    among themselves, those that ask always stand in the order of what they ask for.
    """
    survivors = [node for node in previous if node in nodes]
    newcomers = sorted(nodes.keys() - set(survivors), key=lambda node: (ages[node], node))
    chosen = (survivors + newcomers)[:max_nodes]
    first_to_ask: dict[int, str] = {}
    for node in chosen:
        if nodes[node].rank >= 0:
            first_to_ask.setdefault(nodes[node].rank, node)
    asking = deque(sorted(first_to_ask.items()))
    given = set(first_to_ask.values())
    others = deque(node for node in chosen if node not in given)
    seats: list[str] = []
    while asking or others:
        is_due = bool(asking) and (asking[0][0] <= len(seats) or not others)
        seats.append(asking.popleft()[1] if is_due else others.popleft())
    return seats
