"""What a node does next: a pure function of what it sees and its own state.

The rules are in `node_rules`, `leader_rules` and `refusals`. Together they mean:

- The node that holds the leader's key leads. The key is bound to its lease, so it disappears with the leader, and the
  first node to notice takes it. There is no other election.
- The leader writes the next generation in one transaction, guarded by the last generation and by its own leadership:
  two leaders cannot both succeed, and a generation is decided once.
- A generation ends when a node writes that it is broken, and why: a worker failed, a node is gone, or nodes are to be
  let in. Every node sees that record, stops its workers, and says so. The next generation waits for that word from
  every member of the last one that is still present.
- A node that cannot renew its lease stops its workers while the lease still holds. Other nodes start theirs only after
  that lease has expired.
- A generation's record is the licence to run it. A node stops its workers when the record is replaced or gone, for
  whatever reason: the store may have lost its data, or somebody may have deleted the wrong keys.
- A failed generation is judged when all of its nodes have stopped and reported on their workers: see `judging`.
  `admission` decides when nodes are let into a running job.
- The join timeout runs only while there are too few nodes, not while workers stop or the job pauses. Only the leader
  sees all nodes, so it writes that into the store, and every node counts the time for itself.
- The job ends with one record: all members are done, or one failed and no restart is left.

Call `decide` whenever anything may have changed. It describes the desired state, not a change, so calling it again is
always safe. A transaction that arrives too late fails its guards and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.coordination.model import Created, Delete, Put, Transaction, absent
from holdfast.rendezvous.decision import Decision, Me, Propose, Settings, Stop, first, identity_of
from holdfast.rendezvous.leader_rules import lead
from holdfast.rendezvous.node_rules import my_part
from holdfast.rendezvous.records import encode

if TYPE_CHECKING:
    from holdfast.rendezvous.records import Generation, Keys
    from holdfast.rendezvous.view import View


def decide(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """What `me` does, given what it sees."""
    if _is_declared_lost(view, me):
        me = replace(me, published=None)
    me = _remember(view, me, now)
    mine = my_part(view, me, now, settings, keys)
    me = mine.me
    # A leader leads even while its own workers stop.
    is_busy = any(not isinstance(action, Stop) for action in mine.actions)
    if is_busy or me.published is None or view.end is not None or me.store_is_gone:
        return mine
    if view.leader is None:
        return replace(mine, actions=(*mine.actions, _claim(view, me, keys)))
    if view.leader != me.node or not view.is_whole:
        return replace(mine, me=replace(me, enough_since=None, over_since=None))
    led = lead(view, me, now, settings, keys)
    wake_at = first(mine.wake_at, led.wake_at)
    return Decision(led.me, (*mine.actions, *led.actions), wake_at=wake_at, status=led.status or mine.status)


def registration(me: Me, keys: Keys) -> Transaction:
    """Put this node into the store, once.

    An earlier put whose answer was lost may still arrive late, but the record is never put twice.
    """
    assert me.offer is not None
    key = keys.node(me.node)
    known_job = "" if me.newest is None else me.newest.job
    offer = replace(me.offer, running=me.running, stopped=me.stopped, known=me.known, known_job=known_job)
    puts = (Put(key, encode(offer), me.lease), Put(keys.alive_of(me.node), b"", me.lease))
    return Transaction((absent(key), absent(keys.end)), puts)


def _remember(view: View, me: Me, now: float) -> Me:
    """Record the newest generation, and notice when the store has lost the one that was seen last."""
    generation, seen = view.generation, identity_of(view)
    if seen == me.seen or view.end is not None:
        return me
    lost, before = me.seen, me.newest
    me = replace(me, seen=seen)
    if generation is not None and before is not None and generation.job != before.job:
        me = replace(me, held_off_until=max(me.held_off_until, _gone_by(me, before, now)))
    if generation is not None:
        me = replace(me, newest=generation, known_lease_s=max(me.known_lease_s, generation.lease_s))
        if generation.number > me.known:
            return replace(me, known=generation.number)
    return replace(me, lost=lost, lost_at=now, missing=before)


def _gone_by(me: Me, lost: Generation, now: float) -> float:
    """When the workers of a lost generation are certainly gone.

    The store lost its data, and nodes that had never heard of our job began another one. They cannot know whom to wait
    for, so a node that does know must not join them before that.
    """
    lost_at = me.lost_at if me.missing == lost else now
    return lost_at + max(me.known_lease_s, me.offer.lease_s if me.offer else 0.0)


def _is_declared_lost(view: View, me: Me) -> bool:
    """Whether the other nodes count this node as lost although its lease holds: somebody deleted its record."""
    if not me.lease or me.published is None:
        return False
    if view.is_whole and view.leader == me.node and me.node not in view.nodes and view.revision >= me.said_revision:
        return True
    broken = view.broken
    return broken is not None and me.node in broken.lost and me.registered < broken.generation


def _claim(view: View, me: Me, keys: Keys) -> Propose:
    """Take the leader's key, or first delete a value there that is not the name of a node."""
    if view.leader_revision:
        stands_there = (Created(keys.leader, view.leader_revision), absent(keys.end))
        return Propose(Transaction(stands_there, (Delete(keys.leader),)), "no leader")
    put = Put(keys.leader, me.node.encode(), me.lease)
    return Propose(Transaction((absent(keys.leader), absent(keys.end)), (put,)), "lead")
