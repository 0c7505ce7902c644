"""Exchange ranks and wait for the end through a plain store, with torch's keys.

holdfast's own backends provide the ranks when nodes have met, and know when all nodes are done. Handlers written for
torch have only a store.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Decoder

from holdfast.agent.group import Worker
from holdfast.agent.ranks import assign_ranks
from holdfast.decoding import Count, UndecodableError, decoded
from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalException
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.records import WORKERS_MAX


class _RoleInfo(Struct, frozen=True):
    role: str
    local_world_size: Annotated[int, Meta(ge=1, le=WORKERS_MAX)]


_ROLE_INFO = "torchelastic/role_info/"
_ASSIGNED_RANKS = "torchelastic/assigned_ranks/"
_TERMINAL_STATE = "torchelastic/agent/terminal_state."

log = get_logger(__name__)


def exchange_ranks(store: Any, rank: int, nodes: int, role: str, local_world_size: int) -> list[Worker]:
    """The workers of the node `rank`, derived from what all nodes publish."""
    store.set(f"{_ROLE_INFO}{rank}", json.dumps({"role": role, "rank": rank, "local_world_size": local_world_size}))
    if rank == 0:
        # One node reads all and writes each its ranks: 2 N messages, where all reading all would be N * N.
        infos = [_told(store, f"{_ROLE_INFO}{node}", _RoleInfo) for node in range(nodes)]
        ran = [(info.role, info.local_world_size) for info in infos]
        for node in range(nodes):
            first = assign_ranks(ran, node)[0]
            numbers = [first.global_rank, first.world_size, first.role_rank, first.role_world_size]
            store.set(f"{_ASSIGNED_RANKS}{node}", json.dumps(numbers))
    ranks = _told(store, f"{_ASSIGNED_RANKS}{rank}", tuple[Count, Count, Count, Count])
    base, world_size, role_base, role_world_size = ranks
    return [
        Worker(local_rank, base + local_rank, role_base + local_rank, world_size, role_world_size)
        for local_rank in range(local_world_size)
    ]


def _told(store: Any, key: str, kind: Any) -> Any:
    """Read what another node wrote under a key.

    Raises:
        RendezvousStateError: the value is not valid.
    """
    value = store.get(key)
    try:
        return decoded(Decoder(kind), value.encode() if isinstance(value, str) else bytes(value))
    except UndecodableError as error:
        raise RendezvousStateError(f"{key} in the store is not what a node writes there: {error}") from None


def wait_for_all(store: Any, rank: int, nodes: int, timeout_s: float) -> None:
    """Mark the workers of the node `rank` as done, and wait for all nodes. Logs the missing nodes on failure."""
    keys = [f"{_TERMINAL_STATE}{node}" for node in range(nodes)]
    try:
        store.set(keys[rank], b"done")
        store.wait(keys, timeout_s)
    except SignalException:
        raise
    except Exception as error:  # noqa: BLE001 - our workers have succeeded, whatever happened to the others
        missing = [node for node, key in enumerate(keys) if not _has(store, key)]
        log.warning("left the exit barrier without the nodes %s: %s", missing, error)


def _has(store: Any, key: str) -> bool:
    try:
        return bool(store.check([key]))
    except Exception:  # noqa: BLE001 - the store may be what failed
        return False
