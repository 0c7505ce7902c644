"""One node's life in a group, without I/O: events go in, effects come out.

Around `decide` it keeps the state of a conversation with a store: one transaction at a time, a lease that is renewed, a
view that is read again after its watch broke, and retries while the store does not answer. The edge (`member`) carries
out effects and reports back; the simulator is another edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.coordination.model import Put, Transaction
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.decide import decide, registration
from holdfast.rendezvous.decision import SOMETHING, Decision, Join, Leave, Me, Propose, Start, Stop
from holdfast.rendezvous.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.coordination.model import Changes, Lease, Operation, Outcome, Snapshot
    from holdfast.rendezvous.decision import Action, Settings
    from holdfast.rendezvous.records import End, Failure, Keys, Node

RETRY_S = 0.2
"""The shortest time from a request that fails to the next one. A request that was silent for longer is repeated at
once: the lease is running out."""

UNREADABLE_MAX = 1_000
"""How many unreadable records a node that has no workers meets before it gives up. A few are a mistake or a nuisance,
and are deleted. If they come back again and again, this is not a store that nodes can meet in."""

UNREADABLE = "records in the store are unreadable again and again: another program or holdfast version writes to it"

GONE_AT = 1 / 3
"""A store that refuses all connections for this share of a lease is gone. Anybody on the network path can refuse a few
in its name, and so does a proxy that restarts. A job whose store is really gone should not wait for the whole lease."""

RENEW_AT = 1 / 3
"""The share of a lease after which it is renewed at the latest. One lost answer must leave time for another try."""

STOP_AT = 0.75
"""The share of a lease after which workers are told to stop if it cannot be renewed."""

FENCE_AT = 0.9
"""The share of a lease after which the keeper kills the workers, whatever the agent does. The rest is time for that."""


class Grant(Struct, frozen=True):
    """Ask for a lease. The answer is `granted` or `unavailable`."""

    ttl_s: float


class KeepAlive(Struct, frozen=True):
    """Renew the lease. The answer is `kept`, `lease_lost` or `unavailable`."""

    lease: int


class Transact(Struct, frozen=True):
    """Carry out a transaction. The answer is `answered`, `lease_lost` or `unavailable`."""

    transaction: Transaction
    what: str


class Follow(Struct, frozen=True):
    """Follow the keys under a prefix, instead of the previous prefix. The answers are `read` and `changed`."""

    prefix: str


Effect: TypeAlias = Grant | KeepAlive | Transact | Follow | Start | Stop | Leave


class Membership:
    """A node in a group. Every method takes the time; `step` returns what to do now.

    `wake_at` is when to step again if nothing happens. `status` is a line for people. `fence_at` is until when the
    workers of this node may live without another answer of the store.
    """

    def __init__(
        self, keys: Keys, settings: Settings, name: str, *, ttl_s: float, keep_alive_s: float, store_may_return: bool
    ) -> None:
        self.me = Me()
        self.view: View | None = None
        self.wake_at: float | None = None
        self.status = ""
        self.fence_at = self._lease_fence_at = float("inf")
        self.settings = replace(settings, lease_s=ttl_s)
        self._keys = keys
        self._name = name
        self._ttl_s = ttl_s
        self._keep_alive_s = keep_alive_s
        self._store_may_return = store_may_return
        self._registrations = 0
        self._following = ""
        self._proposed: Propose | None = None
        self._is_writing = False
        self._is_renewing = False
        self._renew_at = float("inf")
        self._retry_at = 0.0
        self._renewed_at = self._wrote_at = 0.0
        self._own_change = 0
        self._refused: tuple[Transaction, int] | None = None
        self._has_said = False
        self._refused_since: float | None = None
        self._unreadable = 0
        self._is_fence_final = False
        self._stopping = ""
        self._has_left = False

    @property
    def has_joined(self) -> bool:
        """Whether this node was ever in the group, as a member or a spare."""
        return self._registrations > 0

    # Calls of the agent

    def seek(self, offer: Node, now: float) -> None:
        """Seek a place in the next generation. No workers run on this node."""
        me = self.me
        self.me = replace(
            me,
            offer=offer,
            stopped=max(me.stopped, me.running),
            running=0,
            done=0,
            is_done_published=False,
            waiting_since=now if me.offer is None else me.waiting_since,
        )
        self._stopping = ""
        self._is_fence_final = False
        self.fence_at = self._lease_fence_at

    def fail(self, failure: Failure) -> None:
        """Report that a worker of the running generation failed.

        A later report counts if it knows more: about the same worker, or the cause after a mere victim, or the number
        of other failures.
        """
        known = self.me.failure
        if not self.me.running:
            return
        if known is not None and known.rank != failure.rank and not _is_cause_of(failure, known):
            failure = replace(known, others=max(known.others, failure.others))
        self.me = replace(self.me, failure=failure)

    def succeed(self) -> None:
        """Report that all workers of the running generation succeeded."""
        self.me = replace(self.me, done=self.me.running)

    def announce_leave(self, reason: str) -> None:
        """Announce that this node is about to leave. Its workers still run, and so do those of other nodes."""
        self.me = replace(self.me, leaving=reason)

    def close(self, end: End) -> None:
        """End the job for all nodes. No workers run on this node."""
        self.me = replace(self.me, stopped=max(self.me.stopped, self.me.running), running=0, closing=end)

    # Answers of the store

    def read(self, snapshot: Snapshot, prefix: str) -> None:
        if prefix == self._following:
            self.view = View.read(self._keys, snapshot, is_whole=prefix == self._keys.group, before=self.view)
            self._own_change = 0
            self._refused = None
            self._answered()

    def changed(self, changes: Changes, prefix: str) -> None:
        if prefix == self._following and self.view is not None:
            self.view.apply(changes)

    def granted(self, lease: Lease, sent_at: float) -> None:
        self._is_writing = False
        self._registrations += 1
        name = f"{self._name}.{self._registrations}"
        self.me = replace(self.me, node=name, lease=lease.id, published=None, came_at=sent_at)
        self._ttl_s = lease.ttl_s
        # etcd grants whole seconds, and at least 2 s. The fence uses the granted time, so other nodes must wait as
        # long.
        self.settings = replace(self.settings, lease_s=max(self.settings.lease_s, lease.ttl_s))
        self.kept(lease.ttl_s, sent_at)

    def kept(self, ttl_s: float, sent_at: float) -> None:
        """The lease was renewed. It certainly holds for `ttl_s` from `sent_at`, when the request was sent."""
        self._is_renewing = False
        self._renew_at = sent_at + min(self._keep_alive_s, ttl_s * RENEW_AT)
        has_lapsed = self.me.has_lapsed or sent_at >= self.me.held_until
        self.me = replace(self.me, stop_by=sent_at + ttl_s * STOP_AT, held_until=sent_at + ttl_s, has_lapsed=has_lapsed)
        self._lease_fence_at = sent_at + ttl_s * FENCE_AT
        if not self._is_fence_final:
            self.fence_at = self._lease_fence_at
        self._answered()

    def lease_lost(self, effect: Effect | None = None) -> None:
        """The answer to `effect` says that the lease is gone. Other requests are still under way."""
        if not isinstance(effect, KeepAlive):
            self._is_writing = False
            self._proposed = None
        if not isinstance(effect, Transact):
            self._is_renewing = False
        self._answered()
        if not isinstance(effect, KeepAlive) or effect.lease == self.me.lease:
            self._renew_at = float("inf")
            self.me = replace(self.me, node="", lease=0, published=None, stop_by=float("inf"))

    def answered(self, outcome: Outcome) -> None:
        proposed, self._proposed = self._proposed, None
        self._is_writing = False
        self._answered()
        if proposed is None:
            return
        transaction = proposed.transaction
        if outcome.succeeded and 0 < proposed.marks_done == self.me.done:
            self.me = replace(self.me, is_done_published=True)
            self._has_said = True
        if proposed.publishes is not None and self.me.lease:
            self._is_published(proposed.publishes, outcome)
        if outcome.succeeded and self._is_followed(transaction.then):
            self._own_change = outcome.revision
        elif self.view is not None and not (outcome.succeeded and _has_put(transaction)):
            # It failed, or there was perhaps nothing to delete: retrying is useless before the view changes.
            self._refused = (transaction, self.view.revision)

    def _is_published(self, offer: Node, outcome: Outcome) -> None:
        """The store has this record of us now, or one that we put there before."""
        if self.me.published is None:
            self.me = replace(self.me, registered=self.me.known)  # even if the store lost that record
        if outcome.succeeded:
            self.me = replace(self.me, published=offer, said_revision=outcome.revision)
            self._has_said = True
        elif self.me.published is None:
            self.me = replace(self.me, published=SOMETHING)

    def unavailable(self, effect: Effect, now: float, *, is_gone: bool = False, is_proven: bool = False) -> None:
        """A request was not answered. It may or may not have been carried out.

        `is_gone`: the store seems to be gone. `is_proven`: another store that knows the token answers in its place.
        """
        match effect:
            case Grant() | Transact():
                self._is_writing = False
                self._proposed = None
                self._retry_at = max(now, self._wrote_at + RETRY_S)
            case KeepAlive():
                self._is_renewing = False
                self._renew_at = max(now, self._renewed_at + RETRY_S)
        if self.me.cut_off_since is None:
            self.me = replace(self.me, cut_off_since=now)
        if not is_gone or self.view is None or self._store_may_return:
            self._refused_since = None
            return
        self._refused_since = now if self._refused_since is None else self._refused_since
        if is_proven or now >= self._refused_since + self._ttl_s * GONE_AT:
            self.me = replace(self.me, store_is_gone=True)

    def unreadable(self, count: int) -> None:
        """So many records of the store could not be read."""
        self._unreadable += count

    def _answered(self) -> None:
        self._refused_since = None
        if self.me.cut_off_since is not None:
            self.me = replace(self.me, cut_off_since=None)

    # Effects

    def step(self, now: float) -> list[Effect]:
        if self._has_left:
            self.wake_at = None
            return []
        effects: list[Effect] = []
        view = self.view or View(self._keys)
        view.stamp(now)
        if self._has_said:
            self._has_said = False
            self.me = replace(self.me, said_at=now)
        decision = decide(view, self.me, now, self.settings, self._keys)
        if self._unreadable > UNREADABLE_MAX and not self.me.running:
            decision = Decision(self.me, (Leave(None, UNREADABLE),))
        self.me = decision.me
        self.status = decision.status
        wakes = [decision.wake_at]
        wakes += (self._act(action, now, effects) for action in decision.actions)
        if self.me.lease and not self._is_renewing:
            if now >= self._renew_at:
                self._is_renewing = True
                self._renewed_at = now
                effects.append(KeepAlive(self.me.lease))
            else:
                wakes.append(self._renew_at)
        leads = view.leader is not None and view.leader == self.me.node
        prefix = self._keys.group if leads else self._keys.shared
        if prefix != self._following:
            self._following = prefix
            effects.append(Follow(prefix))
        self.wake_at = min((at for at in wakes if at is not None), default=None)
        return effects

    def _act(self, action: Action, now: float, effects: list[Effect]) -> float | None:
        """Turn an action into effects. Returns when to retry if the action has to wait."""
        match action:
            case Start():
                self._unreadable = 0
                effects.append(action)
            case Stop():
                if action.is_final and not self._is_fence_final:
                    self._is_fence_final = True
                    self.me = replace(self.me, published=None)  # our own record may be gone, too
                if not self._stopping:
                    self._stopping = action.reason
                    effects.append(action)
            case Leave():
                self._has_left = True
                effects.append(action)
            case Join() | Propose():
                return self._write(action, now, effects)
        return None

    def _write(self, action: Join | Propose, now: float, effects: list[Effect]) -> float | None:
        view = self.view
        if view is None or self._is_writing:
            return None
        if now < self._retry_at:
            return self._retry_at
        if isinstance(action, Join):
            if not self.me.lease:
                self._is_writing = True
                self._wrote_at = now
                effects.append(Grant(self._ttl_s))
                return None
            action = Propose(registration(self.me, self._keys), "join", publishes=self.me.offer)
        # Our own change, or the change that made us fail, is still on its way to the view: retrying is useless until
        # then.
        if view.revision < self._own_change or self._refused == (action.transaction, view.revision):
            return None
        self._is_writing = True
        self._wrote_at = now
        self._proposed = action
        effects.append(Transact(action.transaction, action.what))
        return None

    def _is_followed(self, operations: Sequence[Operation]) -> bool:
        """Whether the view will show a put among `operations`. A delete may find nothing to delete."""
        puts = (operation for operation in operations if isinstance(operation, Put))
        return any(put.key.startswith(self._following) for put in puts)


def _is_cause_of(failure: Failure, other: Failure) -> bool:
    return other.kind is FailureKind.COMMUNICATION and failure.kind is not FailureKind.COMMUNICATION


def _has_put(transaction: Transaction) -> bool:
    return any(isinstance(operation, Put) for operation in transaction.then)
