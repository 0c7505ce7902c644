"""The vocabulary of decisions: a node's own state, its possible actions, and helpers that several rules share."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from holdfast.coordination.model import Created, Modified, Put, Transaction, absent
from holdfast.rendezvous.records import Broken, End, Failure, Generation, Node, encode
from holdfast.rendezvous.restarts import STEADY_S
from holdfast.settings import RestartLimits

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.rendezvous.records import Keys
    from holdfast.rendezvous.view import View


NAMED_MAX = 100
"""The number of nodes that a record lists by name."""

SOMETHING = Node(host="", address="", port=0, role="", workers=0)
"""Stands for a record of this node that the store has although the answer to the put was lost."""

RecordId: TypeAlias = tuple[int, int, str]
"""The number, the revision and the job of a generation's record."""

NO_RECORD: RecordId = (0, 0, "")

LEASE_LOST = "this node could not renew its lease in time, and the others count it as lost"

RECORD_GONE = "the record of this generation is gone from the store: it was deleted, or the store lost its data"

RECORD_UNREADABLE = "the record of this generation was replaced in the store by something unreadable"

RECORD_REPLACED = "the record of this generation was replaced in the store by something other than this job"


class Settings(Struct, frozen=True):
    """The limits of a rendezvous; every time is in seconds."""

    min_nodes: int
    max_nodes: int
    max_restarts: int = 0

    last_call_s: float = 5.0
    """How long the first generation waits for more nodes once there are enough."""

    recall_s: float = 0.0
    """How long a later generation waits for more nodes after a node was lost."""

    join_timeout_s: float = 600.0
    """How long a node waits while there are too few nodes."""

    lease_s: float = 0.0
    """The lease of a node. A node that was silent for this long has no workers."""

    steady_s: float = STEADY_S
    """How long a machine must stay for its earlier losses to be forgotten."""

    restarts: RestartLimits = RestartLimits(0)
    """When a failed generation is restarted. The budget is that of the generation's record."""

    has_given_ranks: bool = False
    """Whether each node was told its rank. A generation then has all `max_nodes` ranks, each held by one node."""


class Me(Struct, frozen=True):
    """The state of this node: what it is, what it has published, what it knows. Generations are numbers; 0 is none."""

    node: str = ""
    """The name that this node is registered under; a new one for each registration."""
    lease: int = 0
    offer: Node | None = None
    published: Node | None = None
    """This node's record in the store."""
    said_at: float = float("inf")
    """When the store accepted `published`."""
    said_revision: int = 0
    """The store's revision of `published`."""
    registered: int = 0
    """The newest generation that this node knew when the store first accepted its record."""

    running: int = 0
    """The generation whose workers may be alive on this node."""
    stopped: int = 0
    """The newest generation whose workers are known to have ended on this node."""
    done: int = 0
    is_done_published: bool = False
    failure: Failure | None = None
    leaving: str = ""
    closing: End | None = None
    last: Generation | None = None
    """The generation that this node started last."""
    licence: RecordId = NO_RECORD
    """The record that permitted the start of `last`, by its `identity_of`."""

    store_is_gone: bool = False
    stop_by: float = float("inf")
    """When workers must be told to stop because the lease cannot be renewed."""
    cut_off_since: float | None = None
    """Since when the store has not answered; None while it answers."""
    waiting_since: float | None = None
    """Since when there have been too few nodes."""

    known: int = 0
    """The newest generation that this node has heard of."""
    known_lease_s: float = 0.0
    """The longest lease in any generation that this node has heard of."""
    seen: RecordId = NO_RECORD
    """The generation record that was seen last, by its `identity_of`."""
    lost: RecordId = NO_RECORD
    """The record that the store lost last."""
    newest: Generation | None = None
    """The generation that was seen last."""
    missing: Generation | None = None
    """The generation of the record `lost`."""
    lost_at: float = float("-inf")
    """When the loss of the record `lost` was noticed."""
    held_off_until: float = float("-inf")
    """Until when this node does not join: workers of a lost generation may live that the job in the store knows nothing
    of."""
    came_at: float = float("-inf")
    """When this node got its lease."""
    held_until: float = float("inf")
    """Until when the lease certainly holds, by this node's own clock."""
    has_lapsed: bool = False
    """Whether the lease has lapsed, by this node's own clock, since `last` started: others may have gone on."""

    on_since: tuple[int, float] = (0, 0.0)
    """As leader: the generation that is running, and when that was first seen."""
    over_since: float | None = None
    """As leader: when the end of the last generation was first seen."""
    enough_since: float | None = None
    """As leader: since when there have been enough nodes for the next generation."""


class Join(Struct, frozen=True):
    """Obtain a lease, and put this node into the store under it."""


class Propose(Struct, frozen=True):
    """Ask the store for a transaction.

    `what` is for people. The other fields hold what becomes true of this node if the transaction succeeds: its record
    in the store, and the generation that it is done with.
    """

    transaction: Transaction
    what: str
    publishes: Node | None = None
    marks_done: int = 0


class Start(Struct, frozen=True):
    """Start the workers of a generation."""

    generation: Generation


class Stop(Struct, frozen=True):
    """Stop the workers. They `may_finish` their current work if no node is lost and nothing has failed.

    With `is_final`, the fence no longer moves, so that it kills the workers in time: the store has lost the record that
    permits them to run, and other nodes may go on before these workers hear of it.
    """

    reason: str
    may_finish: bool = False
    is_final: bool = False


class Leave(Struct, frozen=True):
    """Leave the group: this node's part is over.

    `end` is the job's end, or None if too few nodes came in time, the store is gone, or the job refuses this node.
    """

    end: End | None
    reason: str
    is_refused: bool = False


Action: TypeAlias = Join | Propose | Start | Stop | Leave


class Decision(Struct, frozen=True):
    """The actions, the node's new state, when to decide again if nothing happens, and a status line for people."""

    me: Me
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    status: str = ""


def identity_of(view: View) -> RecordId:
    """What distinguishes a generation's record from every other one.

    Revisions alone do not: a store that has lost its data starts counting again.
    """
    generation = view.generation
    return NO_RECORD if generation is None else (generation.number, view.generation_revision, generation.job)


def reason_of(failure: Failure) -> str:
    return f"rank {failure.rank} on {failure.host} failed: {failure.message}"


def break_up(view: View, keys: Keys, broken: Broken) -> Propose:
    return Propose(Transaction(still_on(view, keys), (Put(keys.broken, encode(broken)),)), f"break: {broken.reason}")


def still_on(view: View, keys: Keys) -> tuple[Modified | Created, ...]:
    """Guards: the generation that we see is current, and no node has broken it."""
    return (Modified(keys.generation, view.generation_revision), absent(keys.broken), absent(keys.end))


def as_leader(view: View, keys: Keys) -> tuple[Modified | Created, ...]:
    """Guards: the generation that we see is current, and we lead.

    Revisions begin again in a store that has lost its data, so that those of the other keys may be the same by chance.
    The leader's own record proves that this is still the store that the leader registered in.
    """
    assert view.leader is not None
    is_here = Created(keys.node(view.leader), view.ages.get(view.leader, 0))
    leads = Created(keys.leader, view.leader_revision)
    return (Modified(keys.generation, view.generation_revision), leads, is_here, absent(keys.end))


def first(*times: float | None) -> float | None:
    """The earliest of some times; None if there are none."""
    return min((at for at in times if at is not None and at < float("inf")), default=None)


def number_of(generation: Generation | None) -> int:
    return 0 if generation is None else generation.number


def name_of(me: Me) -> str:
    return me.offer.host if me.offer else me.node


def counted(nodes: int, one: str, many: str) -> str:
    return f"1 node {one}" if nodes == 1 else f"{nodes} nodes {many}"


def listed(hosts: Collection[str], at_most: int = 4) -> str:
    more = len(hosts) - at_most
    return ", ".join(islice(hosts, at_most)) + (f" and {more} more" if more > 0 else "")


def is_of_the_past(view: View) -> bool:
    """Whether the last generation belongs to a job that no present node took part in.

    All of its nodes left without an end, and other nodes use the same run id now.
    """
    last = view.generation
    if last is None:
        return False
    was_there = any(created < view.generation_revision for created in view.ages.values())
    return not was_there and not any(node.job == last.job for node in view.nodes.values())


def longest_lease_s(view: View, me: Me, settings: Settings) -> float:
    """The longest lease of any node: a node that was silent for this long has no workers."""
    known_s = view.generation.lease_s if view.generation is not None else 0.0
    return max(settings.lease_s, known_s, me.known_lease_s, *(node.lease_s for node in view.nodes.values()))
