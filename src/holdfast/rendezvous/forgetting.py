"""Delete the records that a run left in a store that outlives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.model import OPERATIONS_MAX, Delete, DeletePrefix, Transaction, absent
from holdfast.errors.text import visible
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.records import Node, decode

if TYPE_CHECKING:
    from holdfast.coordination.model import Entry
    from holdfast.coordination.store import CoordinationStore
    from holdfast.rendezvous.records import Keys

FAILURES_MAX = 5
"""How many times a node may come or go while records are deleted. Each time the records are read again."""


class Forgotten(NamedTuple):
    """The result of `forget`. If nodes are `alive`, nothing was deleted unless `force` was set."""

    deleted: tuple[str, ...]
    """The keys that were deleted."""

    alive: tuple[str, ...]
    """The hosts of nodes that hold a lease."""


async def forget(store: CoordinationStore, keys: Keys, *, force: bool = False) -> Forgotten:
    """Delete the records of one run, and no others.

    Raises:
        StoreUnavailableError: the store does not answer. Retrying is safe.
    """
    deleted: list[str] = []
    failures = 0
    while failures < FAILURES_MAX:
        entries = (await store.get_prefix(keys.run)).entries
        leased = [entry for entry in entries if entry.lease]
        nodes = [entry for entry in leased if entry.key.startswith(keys.nodes)]
        alive = tuple(_host(entry) for entry in nodes or leased)
        if force:
            await store.transact(Transaction((), (DeletePrefix(keys.run),)))
            return Forgotten(tuple(entry.key for entry in entries), alive)
        if alive or not entries:
            return Forgotten(tuple(deleted), alive)
        # A node that joins meanwhile keeps its records: only keys that were read are deleted, and only if no node
        # leads.
        batch = [entry.key for entry in entries[:OPERATIONS_MAX]]
        if (await store.transact(Transaction((absent(keys.leader),), tuple(map(Delete, batch))))).succeeded:
            deleted += batch
        else:
            failures += 1
    raise StoreUnavailableError("the records of the run change while they are deleted; try again")


def _host(entry: Entry) -> str:
    try:
        return visible(decode(entry, Node).host)
    except RendezvousStateError:
        return entry.key.rpartition("/")[2]
