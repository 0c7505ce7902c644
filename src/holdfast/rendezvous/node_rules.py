"""Every node's own rules: run a generation, stop it, seek a place in the next one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from msgspec.structs import replace

from holdfast.coordination.model import Modified, Put, Transaction, absent
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.admission import hold_back_s
from holdfast.rendezvous.decision import (
    LEASE_LOST,
    RECORD_GONE,
    RECORD_REPLACED,
    RECORD_UNREADABLE,
    SOMETHING,
    Action,
    Decision,
    Join,
    Leave,
    Me,
    Propose,
    Settings,
    Start,
    Stop,
    break_up,
    counted,
    first,
    identity_of,
    listed,
    name_of,
    number_of,
    reason_of,
    still_on,
)
from holdfast.rendezvous.records import BreakKind, Broken, Failure, Generation, brief, encode

if TYPE_CHECKING:
    from holdfast.rendezvous.records import Keys
    from holdfast.rendezvous.view import View


SAY_AGAIN_S = 60.0
"""A waiting node repeats its record at least this often, and at most twice as often: somebody may have deleted it."""

LOST_WORKERS_STOP = "the store has lost the last generation, and another job has begun; waiting for its workers to stop"


def my_part(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:  # noqa: PLR0911 - one a rule
    is_done = 0 < me.running == me.done
    if me.running and not is_done:
        return _keep_running(view, me, now, keys)
    if view.end is not None:
        return Decision(me, (Leave(view.end, view.end.reason),))
    if me.store_is_gone:
        return Decision(me, (Leave(None, "the store is gone"),))
    is_cut_off = me.cut_off_since is not None and now >= me.cut_off_since + settings.join_timeout_s
    if is_cut_off and (me.closing is not None or is_done):
        return Decision(me, (Leave(None, _too_late(view, me, settings)),))
    if me.closing is not None:
        put = Put(keys.end, encode(me.closing))
        return Decision(me, (Propose(Transaction((absent(keys.end),), (put,)), f"close: {me.closing.reason}"),))
    if is_done:
        return _wait_for_the_others(view, me, now, keys)
    if me.offer is None:
        return Decision(me)
    other_size = _other_size(view, settings)
    if other_size:
        return Decision(me, (Leave(None, other_size, is_refused=True),))
    return _seek_a_place(view, me, now, settings, keys)


def _keep_running(view: View, me: Me, now: float, keys: Keys) -> Decision:
    """Workers run here. Check whether they may go on, and that the store has this node's record."""
    reason = _reason_to_stop(view, me, now)
    again = (Join(),) if me.lease and me.published is None and me.offer is not None else ()
    if reason is not None:
        return Decision(me, (reason, *again))
    if again:
        return Decision(me, again, wake_at=first(me.stop_by))
    if me.failure is not None or me.leaving:
        return Decision(me, _speak_up(view, me, keys))
    return Decision(me, wake_at=first(me.stop_by))


def _reason_to_stop(view: View, me: Me, now: float) -> Stop | None:  # noqa: PLR0911 - one return per reason
    """Why running workers must stop, or None."""
    generation = view.generation
    if view.end is not None:
        return Stop(view.end.reason)
    if me.store_is_gone:
        return Stop("the job's store is gone")
    if not me.lease:
        return Stop(LEASE_LOST)
    if now >= me.stop_by:
        return Stop("the store cannot be reached; the others will count this node as lost")
    if generation is None:
        return Stop(RECORD_UNREADABLE if view.is_generation_unreadable else RECORD_GONE, is_final=True)
    if generation.number > me.running:
        return Stop(f"the other nodes continued without this node, to generation {generation.number}")
    if generation.number < me.running or (me.last is not None and identity_of(view) != me.licence):
        return Stop(RECORD_REPLACED, is_final=True)
    if view.broken is not None and view.broken.generation == me.running:
        return _stop(view.broken)
    return None


def _stop(broken: Broken) -> Stop:
    return Stop(broken.reason, broken.kind in (BreakKind.JOINED, BreakKind.LEFT))


def _speak_up(view: View, me: Me, keys: Keys) -> tuple[Action, ...]:
    """Break the generation because of this node: a worker failed, or the node was asked to leave."""
    failure = me.failure
    if view.generation is None or view.broken is not None:
        return ()
    number = view.generation.number
    if failure is None:
        return (break_up(view, keys, Broken(number, BreakKind.LEFT, me.leaving)),)
    return (break_up(view, keys, Broken(number, BreakKind.FAILED, reason_of(failure), failure)),)


def _wait_for_the_others(view: View, me: Me, now: float, keys: Keys) -> Decision:
    """All workers here succeeded. If the generation breaks nevertheless, this node is needed again."""
    if view.generation is None or view.generation.number != me.running:
        return Decision(me, (Stop("the other nodes continued without this node"),))
    if view.broken is not None and view.broken.generation == me.running:
        return Decision(me, (_stop(view.broken),))
    if me.is_done_published:
        # The other nodes know that we are done, whatever happens to our lease. But a node must be present to lead.
        status = "the workers of this node are done; waiting for the other nodes"
        if not me.published:
            return Decision(me, (Join(),), status=status)
        if now < _say_again_at(me):
            return Decision(me, wake_at=first(_say_again_at(me)), status=status)
    if not me.lease:
        return Decision(me, (Stop(LEASE_LOST),))
    put = Put(keys.done_by(me.done, me.node), b"")
    return Decision(me, (Propose(Transaction(still_on(view, keys), (put,)), "done", marks_done=me.done),))


def _seek_a_place(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """No workers run here, and the node wants some to run."""
    generation, broken = view.generation, view.broken
    is_on = generation is not None and broken is None
    is_member = generation is not None and generation.rank_of(me.node) is not None
    has_started = number_of(generation) <= me.stopped
    # Past `stop_by` the other nodes may have gone on already, however fresh this generation looks to us.
    if generation is not None and is_on and is_member and not has_started and now < me.stop_by:
        if not _is_as_offered(generation, me, settings):
            return Decision(me, (break_up(view, keys, _not_as_offered(generation, me)),))
        me = replace(
            me,
            running=generation.number,
            last=generation,
            licence=identity_of(view),
            has_lapsed=False,
            offer=None if me.offer is None else replace(me.offer, job=generation.job),
            waiting_since=None,
            failure=None,
        )
        return Decision(me, (Start(generation),))
    if me.node in view.refused:
        return Decision(me, (Leave(None, view.refused[me.node], is_refused=True),))
    is_spare = is_on and not is_member
    # Only the leader sees whether there are enough nodes. Without a leader, assume too few.
    is_short = not is_spare and (view.leader is None or view.short is not None)
    me = replace(me, waiting_since=None if not is_short else now if me.waiting_since is None else me.waiting_since)
    deadlines = [since + settings.join_timeout_s for since in (me.waiting_since, me.cut_off_since) if since is not None]
    deadline = min(deadlines, default=None)
    if deadline is not None and now >= deadline:
        return Decision(me, (Leave(None, _too_late(view, me, settings)),))
    status = _waiting_for(view, me, settings)
    if generation is not None and is_spare:
        part = _part_of_spare(generation, me, settings)
        status = f"{counted(len(generation.members), 'runs', 'run')}; this one {part}"
    elif is_member:
        if is_on:
            actions = _give_up(view, me, keys) if has_started else ()
            return Decision(me, actions, deadline, status)
        if not has_started:  # the failure here belongs to an earlier generation
            me = replace(me, stopped=number_of(generation), failure=None)
    return _offer(view, me, now, deadline, status, settings, keys)


def _other_size(view: View, settings: Settings) -> str:
    """Why this node cannot be in a job of nodes with given ranks: the job has another number of nodes. "" if it can."""
    if not settings.has_given_ranks:
        return ""
    count = settings.max_nodes
    if view.generation is not None:
        count = len(view.generation.members)
    elif view.short is not None:
        count = view.short.needed
    if count == settings.max_nodes:
        return ""
    return f"--nnodes is {settings.max_nodes} here and {count} on another node; give all nodes the same"


def _is_as_offered(generation: Generation, me: Me, settings: Settings) -> bool:
    """Whether a generation lists this node with the workers that it offers, and with the rank that it was given."""
    rank = generation.rank_of(me.node)
    if me.offer is None or rank is None or (settings.has_given_ranks and rank != me.offer.rank):
        return False
    member = generation.members[rank]
    return (member.role, member.workers) == (me.offer.role, me.offer.workers)


def _not_as_offered(generation: Generation, me: Me) -> Broken:
    why = f"{name_of(me)} does not start its workers of generation {generation.number}: its offer has changed since"
    return Broken(generation.number, BreakKind.LOST, why)


def _part_of_spare(generation: Generation, me: Me, settings: Settings) -> str:
    """What a node does that is not in the running generation."""
    if me.node in generation.past.left_out:
        return "was left out because only its workers failed"
    losses = dict(generation.arrivals.losses).get(name_of(me), 0)
    wait_s = hold_back_s(losses, settings.lease_s)
    if wait_s:
        return f"was lost {losses} times; it is let in again after staying for {wait_s:g} s"
    if settings.has_given_ranks and me.offer is not None:
        return f"waits for rank {me.offer.rank}, which another node holds until its lease ends"
    return "waits as a spare"


def _give_up(view: View, me: Me, keys: Keys) -> tuple[Action, ...]:
    """Break the running generation: this node is a member, and had to stop its workers."""
    if me.failure is not None:
        return _speak_up(view, me, keys)
    broken = Broken(number_of(view.generation), BreakKind.LOST, f"{name_of(me)} had to stop its workers")
    return (break_up(view, keys, broken),)


def _offer(
    view: View, me: Me, now: float, deadline: float | None, status: str, settings: Settings, keys: Keys
) -> Decision:
    """Keep the store's record of this node's offer up to date."""
    assert me.offer is not None
    known, known_job = _known_to_tell(me)
    offer = replace(
        me.offer,
        stopped=me.stopped,
        failure=_worth_telling(me.failure),
        job=_job_of(me),
        lease_s=max(settings.lease_s, me.known_lease_s),
        known=known,
        known_job=known_job,
    )
    me = replace(me, offer=offer)
    if not me.lease or me.published is None:
        if now < me.held_off_until:
            return Decision(me, wake_at=first(deadline, me.held_off_until), status=LOST_WORKERS_STOP)
        return Decision(me, (Join(),), deadline, status)
    say_again_at = _say_again_at(me)
    # Also repeat the record as soon as it looks as if somebody had deleted it.
    is_missed = view.short is not None and me.waiting_since is not None and me.said_at < me.waiting_since
    is_doubtful = me.said_at < me.lost_at or is_missed
    if me.published != offer or is_doubtful or now >= say_again_at:
        puts = (Put(keys.node(me.node), encode(offer), me.lease), Put(keys.alive_of(me.node), b"", me.lease))
        # Guarded by the generation that it answers: a late put must not overwrite a newer record.
        guards = (Modified(keys.generation, view.generation_revision), absent(keys.end))
        ready = Propose(Transaction(guards, puts), "ready", publishes=offer)
        return Decision(me, (ready,), deadline, status)
    return Decision(me, wake_at=first(deadline, say_again_at), status=status)


def _known_to_tell(me: Me) -> tuple[int, str]:
    """The newest generation that this node knows and the job that it saw last, for its record.

    They are not updated with every generation, only for a store that may have lost the last one.
    """
    if me.published is None or me.published is SOMETHING or me.said_at < me.lost_at:
        return me.known, "" if me.newest is None else me.newest.job
    return me.published.known, me.published.known_job


def _say_again_at(me: Me) -> float:
    """When to repeat the record. It differs by node, so that nodes that stopped together do not all write together."""
    return me.said_at + SAY_AGAIN_S * (1.0 + crc32(me.node.encode()) % 256 / 255) / 2.0


def _job_of(me: Me) -> str:
    return "" if me.last is None else me.last.job


def _worth_telling(failure: Failure | None) -> Failure | None:
    """The full failure if it may be the cause. Thousands of nodes may have lost a peer: theirs are shortened."""
    return brief(failure) if failure is not None and failure.kind is FailureKind.COMMUNICATION else failure


def _too_late(view: View, me: Me, settings: Settings) -> str:
    limit_s = settings.join_timeout_s
    if me.cut_off_since is not None:
        return f"the store could not be reached for {limit_s:g} s"
    if view.is_whole and len(view.nodes) < settings.min_nodes:
        here = f"only {len(view.nodes)} of {settings.min_nodes} nodes joined within {limit_s:g} s"
        return f"{here}{_missing(view, settings)}"
    return f"too few nodes joined within {limit_s:g} s; at least {settings.min_nodes} are needed"


def _waiting_for(view: View, me: Me, settings: Settings) -> str:
    if me.cut_off_since is not None:
        return f"the store does not answer; waiting for it, up to {settings.join_timeout_s:g} s"
    left = view.broken.nodes_left if view.broken is not None else 0
    enough = f"{settings.min_nodes} are needed; waiting for more, up to {settings.join_timeout_s:g} s"
    if 0 < left < settings.min_nodes:
        return f"{counted(left, 'is', 'are')} left and {enough}{_missing(view, settings)}"
    if view.is_whole and len(view.nodes) < settings.min_nodes:
        return f"{counted(len(view.nodes), 'is', 'are')} here and {enough}{_missing(view, settings)}"
    return f"waiting for the other nodes, up to {settings.join_timeout_s:g} s"


def _missing(view: View, settings: Settings) -> str:
    """The given ranks that no node here has, for people; "" if that is unknown."""
    if not settings.has_given_ranks or not view.is_whole:
        return ""
    missing = [str(rank) for rank in range(settings.max_nodes) if rank not in view.ranks]
    return f"; missing: --node-rank {listed(missing)}" if missing else ""
