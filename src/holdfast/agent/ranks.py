"""Assign ranks: a pure function of what each node runs."""

from __future__ import annotations

from holdfast.agent.group import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def assign_ranks(nodes: Sequence[tuple[str, int]], node_rank: int) -> list[Worker]:
    """The workers of the node `node_rank`.

    `nodes` has the role and the number of workers of every node, in rank order. Global ranks count through all nodes in
    that order; role ranks count through the nodes of the same role.
    """
    role, local_world_size = nodes[node_rank]
    first_rank = sum(size for _, size in nodes[:node_rank])
    first_role_rank = sum(size for other, size in nodes[:node_rank] if other == role)
    world_size = sum(size for _, size in nodes)
    role_world_size = sum(size for other, size in nodes if other == role)
    return [
        Worker(local_rank, first_rank + local_rank, first_role_rank + local_rank, world_size, role_world_size)
        for local_rank in range(local_world_size)
    ]


def place_of(nodes: Sequence[tuple[str, int]], rank: int) -> tuple[int, int]:
    """The node of an existing global rank, and the local rank there. `nodes` is as in `assign_ranks`."""
    for node_rank, (_, local_world_size) in enumerate(nodes):
        if rank < local_world_size:
            return node_rank, rank
        rank -= local_world_size
    raise AssertionError("the nodes have fewer workers than that")
