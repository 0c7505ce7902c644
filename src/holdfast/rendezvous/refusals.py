"""Who can never be let in, and who only has to wait: pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from holdfast.coordination.model import Created, Delete, Put, Transaction
from holdfast.rendezvous.decision import (
    NAMED_MAX,
    Me,
    Propose,
    Settings,
    as_leader,
    is_of_the_past,
    longest_lease_s,
)
from holdfast.rendezvous.seating import holders
from holdfast.rendezvous.view import REFUSALS_MAX

if TYPE_CHECKING:
    from holdfast.coordination.model import Operation
    from holdfast.rendezvous.records import Keys, Node
    from holdfast.rendezvous.view import View

NAME_MAX_CHARACTERS = 200
"""How much of a program's name is shown to other nodes."""

RANK_TAKEN_LEASES = 2.0
"""How many leases two nodes with the same given rank may be there before the younger one is refused. The lease of a
killed node ends within one."""

NOW = float("-inf")
"""When a node is refused for which there is nothing to wait for."""

Unwanted: TypeAlias = tuple[str, str, float, str]
"""A node that cannot be let in, why, from when it is refused, and because of which node, or ""."""


def refused_next(view: View, me: Me, settings: Settings, now: float) -> Unwanted | None:
    """The node that is to be refused next, or None."""
    return _with_another_program(view, me) or _with_a_taken_rank(view, me, settings, now)


def refuse(view: View, name: str, why: str, keys: Keys, because_of: str = "") -> Propose | None:
    """Refuse a node for good, if the node is still there that it is refused for. None if no view could remember it."""
    put = Put(f"{keys.refused}{name}", why.encode("utf-8", "backslashreplace"))
    left = tuple(islice((each for each in view.refused if each not in view.nodes), NAMED_MAX))
    if len(view.refused) - len(left) >= REFUSALS_MAX:
        return None  # no view would hold it, and the leader would refuse the node for ever
    operations: tuple[Operation, ...] = (put, *(Delete(f"{keys.refused}{each}") for each in left))
    still_there = (Created(keys.node(because_of), view.ages[because_of]),) if because_of else ()
    return Propose(Transaction((*as_leader(view, keys), *still_there), operations), f"refuse {view.nodes[name].host}")


def admissible(view: View, settings: Settings) -> dict[str, Node]:
    """The nodes that are not refused, and of those with the same given rank the one that holds it."""
    nodes = view.nodes
    if view.refused:
        nodes = {name: node for name, node in nodes.items() if name not in view.refused}
    if settings.has_given_ranks and len(nodes) >= settings.max_nodes:
        sizes = (0, settings.max_nodes)  # 0 if a node does not say
        nodes = {name: node for name, node in nodes.items() if node.fingerprint.max_nodes in sizes}
        if len(view.ranks) < len(nodes):
            nodes = holders(nodes, view.ages)
    return nodes


def _with_another_program(view: View, me: Me) -> Unwanted | None:
    """A node that runs another program: it can never be let in."""
    if len(view.programs) <= 1 and view.generation is None:
        return None
    ours = _program(view, me)
    if not ours or not view.programs.keys() - {ours}:
        return None
    for name, node in view.nodes.items():
        theirs = node.fingerprint.program
        if theirs and theirs != ours and name not in view.refused:
            why = (
                f"it runs {theirs[:NAME_MAX_CHARACTERS]!r}, and the job of this run id runs "
                f"{ours[:NAME_MAX_CHARACTERS]!r}; give one of them another --rdzv-id"
            )
            return name, why, NOW, ""
    return None


def _program(view: View, me: Me) -> str:
    """The name of the program that this job runs: from its generations, or before the first one, the leader's own."""
    if view.generation is not None and not is_of_the_past(view):
        return view.generation.fingerprint.program
    return "" if me.offer is None else me.offer.fingerprint.program


def _with_a_taken_rank(view: View, me: Me, settings: Settings, now: float) -> Unwanted | None:
    """A node that was told the rank of another one, and when it is refused.

    It may replace a node that was killed, whose lease still has to end. So it is refused if both are there for longer.
    """
    if not settings.has_given_ranks or len(view.ranks) == len(view.nodes):
        return None
    held = holders(view.nodes, view.ages)
    holder_of = {node.rank: holder for holder, node in held.items()}
    at_most_s = RANK_TAKEN_LEASES * longest_lease_s(view, me, settings)
    refused_at = {
        name: view.since.get(name, now) + at_most_s for name in view.nodes.keys() - held.keys() - view.refused.keys()
    }
    if not refused_at:
        return None
    name = min(refused_at, key=lambda name: (refused_at[name], name))
    rank = view.nodes[name].rank
    holder = holder_of[rank]
    why = f"rank {rank} is taken by {held[holder].host}; give each node a rank of its own, and the same --nnodes"
    return name, why, refused_at[name], holder
