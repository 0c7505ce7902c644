"""What a node does next: a pure function of what it sees and what it is. Every rule of the rendezvous is here.

- The node that holds the leader's key leads. The key is under its lease, so a leader that is gone has no key, and the
  first to see that takes it. Nothing else is elected.
- The leader writes the next generation in one transaction, guarded by the last one and by its own leadership: two
  leaders cannot both succeed, and a generation is decided once.
- A generation ends when somebody writes that it is broken, and why: a worker failed, a node is gone, nodes are to be
  let in. Everybody hears of it, stops its workers, and says so. The next generation waits for that word from everyone
  who was in the last one and is still there.
- A node that cannot renew its lease stops its workers while the lease still holds. Others start theirs after it has
  run out.
- A generation's record is the licence to run it. A node stops its workers when the record is replaced or gone, whoever
  did that: the store may have lost its data, or somebody may have deleted the wrong keys.
- A generation that failed is judged when all of its nodes have stopped and said what became of their workers: see
  `judging`. When nodes are let into a job that runs is decided in `admission`.
- The join timeout runs only while there are too few nodes, not while workers stop or the job pauses. Only the leader
  sees all nodes, so it says so in the store, and every node counts the time for itself.
- The job ends with one record: all members are done, or one failed and no restart is left.

`decide` is called whenever anything may have changed. It says what should be so, not what is new: it can be asked again
at any time, and a transaction that comes too late fails its guards and changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from holdfast.coordination.model import Created, Delete, DeletePrefix, Modified, Put, Transaction, absent
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.admission import admits_at, batch_s, hold_back_s, lost_too_often, remember
from holdfast.rendezvous.judging import is_loss, judge
from holdfast.rendezvous.records import (
    GENERATION_MAX,
    Arrivals,
    BreakKind,
    Broken,
    End,
    EndKind,
    Failure,
    Generation,
    Member,
    Node,
    Remembered,
    Short,
    brief,
    encode,
)
from holdfast.rendezvous.restarts import AUTO, STEADY_S
from holdfast.rendezvous.seating import seat

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.coordination.model import Operation
    from holdfast.rendezvous.judging import Judged
    from holdfast.rendezvous.records import Keys
    from holdfast.rendezvous.restarts import Ruling
    from holdfast.rendezvous.view import View


SAY_AGAIN_S = 60.0
"""At least so often, and at most twice as often, a node that waits says again what others wait for: somebody may have
deleted it."""

JUMP_MAX = 1 << 32
"""By how much the number of a generation can be raised by what a node tells of it. Nobody sees so many, and one who
claims the largest that there can be must not end the counting."""

NUMBERS_SPENT = (
    "a record in the store has the largest number that a generation can have, which no agent has written; "
    "give another --rdzv-id"
)

NAME_MAX_CHARACTERS = 200
"""How much of a program's name others are shown."""

NAMED_MAX = 100
"""How many nodes a record names that is about some of them."""

SOMETHING = Node(host="", address="", port=0, role="", workers=0)
"""What the store has of a node that put itself there and never heard of it."""

RecordId: TypeAlias = tuple[int, int, str]
"""The number, the revision and the job of a generation's record."""

NO_RECORD: RecordId = (0, 0, "")

LEASE_LOST = "this node could not renew its lease in time, and the others count it as lost"

RECORD_GONE = "the record of this generation is gone from the store: its data was lost, or somebody deleted it"

RECORD_UNREADABLE = "the record of this generation was replaced in the store by something that nobody can read"

RECORD_REPLACED = "the record of this generation was replaced in the store, and not by this job"


class Settings(Struct, frozen=True):
    """The limits of a rendezvous; every time is in seconds."""

    min_nodes: int
    max_nodes: int
    max_restarts: int = 0

    last_call_s: float = 5.0
    """How long the first generation waits for more nodes once there are enough."""

    recall_s: float = 0.0
    """How long a later one does, when a node was lost."""

    join_timeout_s: float = 600.0
    """How long a node waits while there are too few nodes."""

    lease_s: float = 0.0
    """How long the leases of nodes last: after that, a node that is silent has no workers."""

    steady_s: float = STEADY_S
    """How long a machine must have stayed for its earlier losses to be forgotten."""

    restart_window_s: float = 0.0
    """How long workers must have run before a failure for the restarts to be counted anew; 0 for never."""

    restart_policy: str = AUTO


class Me(Struct, frozen=True):
    """This node: what it is, what it has said, what it knows. Generations are numbers, and 0 is none."""

    node: str = ""
    """The name that it is registered under; another one each time it registers."""
    lease: int = 0
    offer: Node | None = None
    published: Node | None = None
    """What the store has of this node."""
    said_at: float = float("inf")
    """When the store took that ..."""
    said_revision: int = 0
    """... and its revision then."""
    registered: int = 0
    """The newest generation that this node had heard of when the store first did."""

    running: int = 0
    """The generation whose workers may be alive here."""
    stopped: int = 0
    """The newest generation whose workers are known to have ended here."""
    done: int = 0
    is_done_published: bool = False
    failure: Failure | None = None
    leaving: str = ""
    closing: End | None = None
    last: Generation | None = None
    """The generation that was started here last."""
    licence: RecordId = NO_RECORD
    """The record that let it start, by its `_identity`."""

    store_is_gone: bool = False
    stop_by: float = float("inf")
    """When workers have to be told to stop because the lease cannot be renewed."""
    cut_off_since: float | None = None
    """When the store answered last, if it does not."""
    waiting_since: float | None = None
    """Since when there are too few nodes."""

    known: int = 0
    """The newest generation that this node has heard of."""
    known_lease_s: float = 0.0
    """The longest lease in any generation that this node has heard of."""
    seen: RecordId = NO_RECORD
    """The record of a generation that was seen last, by its `_identity`."""
    lost: RecordId = NO_RECORD
    """The record that the store lost last ..."""
    newest: Generation | None = None
    """The generation that was seen last."""
    missing: Generation | None = None
    """The generation of that record."""
    lost_at: float = float("-inf")
    """... and when that was noticed."""
    came_at: float = float("-inf")
    """When this node got its lease."""

    on_since: tuple[int, float] = (0, 0.0)
    """As leader: the generation that is on, and when it was first seen to be."""
    over_since: float | None = None
    """As leader: when the last generation was seen to be over."""
    enough_since: float | None = None
    """As leader: since when there are nodes enough for the next one."""


class Join(Struct, frozen=True):
    """Take a lease, and put this node into the store under it."""


class Propose(Struct, frozen=True):
    """Ask the store for a transaction. `what` is for people; the rest is what is true of us if it succeeds: what the
    store has of us, and the generation that we are done with.
    """

    transaction: Transaction
    what: str
    publishes: Node | None = None
    marks_done: int = 0


class Start(Struct, frozen=True):
    """Start the workers of a generation."""

    generation: Generation


class Stop(Struct, frozen=True):
    """Stop the workers. They `may_finish` what they are at if nobody is lost and nothing has failed.

    With `is_final`, the fence is not moved any more, so that it ends the workers in time: the store has lost the record
    that lets them run, and others may go on before they are told.
    """

    reason: str
    may_finish: bool = False
    is_final: bool = False


class Leave(Struct, frozen=True):
    """This node's part is over: the job's end, or None if too few nodes came in time, the store is gone, or the job
    refuses this node.
    """

    end: End | None
    reason: str
    is_refused: bool = False


Action: TypeAlias = Join | Propose | Start | Stop | Leave


class Decision(Struct, frozen=True):
    """What to do; what this node remembers of it; when to ask again if nothing happens; and a line for people."""

    me: Me
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    status: str = ""


def decide(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """What `me` does, given what it sees."""
    if _is_declared_lost(view, me):
        me = replace(me, published=None)
    me = _remember(view, me, now)
    mine = _my_part(view, me, now, settings, keys)
    me = mine.me
    # A leader leads also while its own workers stop.
    is_busy = any(not isinstance(action, Stop) for action in mine.actions)
    if is_busy or me.published is None or view.end is not None or me.store_is_gone:
        return mine
    if view.leader is None:
        return replace(mine, actions=(*mine.actions, _claim(view, me, keys)))
    if view.leader != me.node or not view.is_whole:
        return replace(mine, me=replace(me, enough_since=None, over_since=None))
    led = _lead(view, me, now, settings, keys)
    wake_at = _first(mine.wake_at, led.wake_at)
    return Decision(led.me, (*mine.actions, *led.actions), wake_at=wake_at, status=led.status or mine.status)


def registration(me: Me, keys: Keys) -> Transaction:
    """Put this node into the store, once. If an answer was lost, what was put then may come late, but never again."""
    assert me.offer is not None
    key = keys.node(me.node)
    offer = replace(me.offer, running=me.running, stopped=me.stopped, known=me.known)
    puts = (Put(key, encode(offer), me.lease), Put(keys.alive_of(me.node), b"", me.lease))
    return Transaction((absent(key), absent(keys.end)), puts)


def _remember(view: View, me: Me, now: float) -> Me:
    """Know the newest generation, and notice when the store has lost the one that was seen last."""
    generation, seen = view.generation, _identity(view)
    if seen == me.seen or view.end is not None:
        return me
    lost, before = me.seen, me.newest
    me = replace(me, seen=seen)
    if generation is not None:
        me = replace(me, newest=generation, known_lease_s=max(me.known_lease_s, generation.lease_s))
        if generation.number > me.known:
            return replace(me, known=generation.number)
    return replace(me, lost=lost, lost_at=now, missing=before)


def _identity(view: View) -> RecordId:
    """What tells a generation's record from every other. Revisions alone do not: a store that has lost its data counts
    them anew.
    """
    generation = view.generation
    return NO_RECORD if generation is None else (generation.number, view.generation_revision, generation.job)


def _is_declared_lost(view: View, me: Me) -> bool:
    """Whether the others count this node as lost although its lease holds: somebody deleted its record."""
    if not me.lease or me.published is None:
        return False
    if view.is_whole and view.leader == me.node and me.node not in view.nodes and view.revision >= me.said_revision:
        return True
    broken = view.broken
    return broken is not None and me.node in broken.lost and me.registered < broken.generation


def _claim(view: View, me: Me, keys: Keys) -> Propose:
    """Lead, or first take away what stands in the leader's place and is not the name of a node."""
    if view.leader_revision:
        stands_there = (Created(keys.leader, view.leader_revision), absent(keys.end))
        return Propose(Transaction(stands_there, (Delete(keys.leader),)), "nobody leads")
    put = Put(keys.leader, me.node.encode(), me.lease)
    return Propose(Transaction((absent(keys.leader), absent(keys.end)), (put,)), "lead")


# What every node does for itself


def _my_part(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:  # noqa: PLR0911 - one a rule
    is_done = 0 < me.running == me.done
    if me.running and not is_done:
        return _keep_running(view, me, now, keys)
    if view.end is not None:
        return Decision(me, (Leave(view.end, view.end.reason),))
    if me.store_is_gone:
        return Decision(me, (Leave(None, "the store is gone"),))
    is_cut_off = me.cut_off_since is not None and now >= me.cut_off_since + settings.join_timeout_s
    if is_cut_off and (me.closing is not None or is_done):
        return Decision(me, (Leave(None, _too_late(me, settings)),))
    if me.closing is not None:
        put = Put(keys.end, encode(me.closing))
        return Decision(me, (Propose(Transaction((absent(keys.end),), (put,)), f"close: {me.closing.reason}"),))
    if is_done:
        return _wait_for_the_others(view, me, now, keys)
    if me.offer is None:
        return Decision(me)
    return _seek_a_place(view, me, now, settings, keys)


def _keep_running(view: View, me: Me, now: float, keys: Keys) -> Decision:
    """Workers run here. See whether they may go on, and that the others know of this node."""
    reason = _reason_to_stop(view, me, now)
    again = (Join(),) if me.lease and me.published is None and me.offer is not None else ()
    if reason is not None:
        return Decision(me, (reason, *again))
    if again:
        return Decision(me, again, wake_at=_first(me.stop_by))
    if me.failure is not None or me.leaving:
        return Decision(me, _speak_up(view, me, keys))
    return Decision(me, wake_at=_first(me.stop_by))


def _reason_to_stop(view: View, me: Me, now: float) -> Stop | None:  # noqa: PLR0911 - one a reason
    """Why workers that run must not go on, if so."""
    generation = view.generation
    if view.end is not None:
        return Stop(view.end.reason)
    if me.store_is_gone:
        return Stop("the store that the nodes meet in is gone")
    if not me.lease:
        return Stop(LEASE_LOST)
    if now >= me.stop_by:
        return Stop("the store cannot be reached; the others will count this node as lost")
    if generation is None:
        return Stop(RECORD_UNREADABLE if view.is_generation_unreadable else RECORD_GONE, is_final=True)
    if generation.number > me.running:
        return Stop(f"the others went on without this node, to generation {generation.number}")
    if generation.number < me.running or (me.last is not None and _identity(view) != me.licence):
        return Stop(RECORD_REPLACED, is_final=True)
    if view.broken is not None and view.broken.generation == me.running:
        return _stop(view.broken)
    return None


def _stop(broken: Broken) -> Stop:
    return Stop(broken.reason, broken.kind in (BreakKind.JOINED, BreakKind.LEFT))


def _speak_up(view: View, me: Me, keys: Keys) -> tuple[Action, ...]:
    """Break the generation because of this node: a worker failed here, or it was asked to leave."""
    failure = me.failure
    if view.generation is None or view.broken is not None:
        return ()
    number = view.generation.number
    if failure is None:
        return (_break(view, keys, Broken(number, BreakKind.LEFT, me.leaving)),)
    return (_break(view, keys, Broken(number, BreakKind.FAILED, _reason(failure), failure)),)


def _wait_for_the_others(view: View, me: Me, now: float, keys: Keys) -> Decision:
    """All workers here succeeded. If the generation breaks nevertheless, this node is needed again."""
    if view.generation is None or view.generation.number != me.running:
        return Decision(me, (Stop("the others went on without this node"),))
    if view.broken is not None and view.broken.generation == me.running:
        return Decision(me, (_stop(view.broken),))
    if me.is_done_published:
        # Whatever becomes of our lease: the others know. But somebody has to be there to lead.
        status = "the workers of this node are done; waiting for the other nodes"
        if not me.published:
            return Decision(me, (Join(),), status=status)
        if now < _say_again_at(me):
            return Decision(me, wake_at=_first(_say_again_at(me)), status=status)
    if not me.lease:
        return Decision(me, (Stop(LEASE_LOST),))
    put = Put(keys.done_by(me.done, me.node), b"")
    return Decision(me, (Propose(Transaction(_still_on(view, keys), (put,)), "done", marks_done=me.done),))


def _seek_a_place(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """No workers run here, and some should."""
    generation, broken = view.generation, view.broken
    is_on = generation is not None and broken is None
    is_member = generation is not None and generation.rank_of(me.node) is not None
    has_started = _number(generation) <= me.stopped
    # Past `stop_by` the others may have gone on already, however fresh this generation looks to us.
    if generation is not None and is_on and is_member and not has_started and now < me.stop_by:
        if not _is_as_offered(generation, me):
            return Decision(me, (_break(view, keys, _not_as_offered(generation, me)),))
        me = replace(
            me,
            running=generation.number,
            last=generation,
            licence=_identity(view),
            offer=None if me.offer is None else replace(me.offer, job=generation.job),
            waiting_since=None,
            failure=None,
        )
        return Decision(me, (Start(generation),))
    if me.node in view.refused:
        return Decision(me, (Leave(None, view.refused[me.node], is_refused=True),))
    is_spare = is_on and not is_member
    # Only the leader sees whether there are enough; where nobody leads, nobody knows of any.
    is_short = not is_spare and (view.leader is None or view.short is not None)
    me = replace(me, waiting_since=None if not is_short else now if me.waiting_since is None else me.waiting_since)
    deadlines = [since + settings.join_timeout_s for since in (me.waiting_since, me.cut_off_since) if since is not None]
    deadline = min(deadlines, default=None)
    if deadline is not None and now >= deadline:
        return Decision(me, (Leave(None, _too_late(me, settings)),))
    status = _waiting_for(view, me, settings)
    if generation is not None and is_spare:
        part = _part_of_spare(generation, me, settings)
        status = f"{_counted(len(generation.members), 'runs', 'run')}; this one {part}"
    elif is_member:
        if is_on:
            actions = _give_up(view, me, keys) if has_started else ()
            return Decision(me, actions, deadline, status)
        if not has_started:  # what failed here was of an earlier one
            me = replace(me, stopped=_number(generation), failure=None)
    return _offer(view, me, now, deadline, status, settings, keys)


def _is_as_offered(generation: Generation, me: Me) -> bool:
    """Whether a generation lists this node with the workers that it offers."""
    return me.offer is not None and any(
        (member.node, member.role, member.workers) == (me.node, me.offer.role, me.offer.workers)
        for member in generation.members
    )


def _not_as_offered(generation: Generation, me: Me) -> Broken:
    why = f"{_name(me)} does not start what generation {generation.number} lists for it: it offers other workers"
    return Broken(generation.number, BreakKind.LOST, why)


def _part_of_spare(generation: Generation, me: Me, settings: Settings) -> str:
    """What a node does that is not in the generation that runs."""
    if me.node in generation.past.left_out:
        return "was left out because its workers failed and those of the others did not"
    losses = dict(generation.arrivals.losses).get(_name(me), 0)
    wait_s = hold_back_s(losses, settings.lease_s)
    if wait_s:
        return f"was lost {losses} times, and is let in when it has stayed for {wait_s:g} s"
    return "waits as a spare"


def _give_up(view: View, me: Me, keys: Keys) -> tuple[Action, ...]:
    """This node is in a generation that is on, and had to stop its workers."""
    if me.failure is not None:
        return _speak_up(view, me, keys)
    broken = Broken(_number(view.generation), BreakKind.LOST, f"{_name(me)} had to stop its workers")
    return (_break(view, keys, broken),)


def _offer(
    view: View, me: Me, now: float, deadline: float | None, status: str, settings: Settings, keys: Keys
) -> Decision:
    """See to it that the store has what this node offers."""
    assert me.offer is not None
    offer = replace(
        me.offer,
        stopped=me.stopped,
        failure=_worth_telling(me.failure),
        job=_job_of(me),
        lease_s=max(settings.lease_s, me.known_lease_s),
        known=_known_to_tell(me),
    )
    me = replace(me, offer=offer)
    if not me.lease or me.published is None:
        return Decision(me, (Join(),), deadline, status)
    say_again_at = _say_again_at(me)
    # Also as soon as something looks as if somebody had deleted what was said.
    is_missed = view.short is not None and me.waiting_since is not None and me.said_at < me.waiting_since
    is_doubtful = me.said_at < me.lost_at or is_missed
    if me.published != offer or is_doubtful or now >= say_again_at:
        puts = (Put(keys.node(me.node), encode(offer), me.lease), Put(keys.alive_of(me.node), b"", me.lease))
        # Guarded by what it answers: should it come late, it must not take back what was said since.
        guards = (Modified(keys.generation, view.generation_revision), absent(keys.end))
        ready = Propose(Transaction(guards, puts), "ready", publishes=offer)
        return Decision(me, (ready,), deadline, status)
    return Decision(me, wake_at=_first(deadline, say_again_at), status=status)


def _known_to_tell(me: Me) -> int:
    """The newest generation that this node knows of. It is not told anew with every generation, only to a store that
    may have lost the last one.
    """
    if me.published is None or me.published is SOMETHING or me.said_at < me.lost_at:
        return me.known
    return me.published.known


def _say_again_at(me: Me) -> float:
    """Not all at once: nodes that stopped together would speak together for ever."""
    return me.said_at + SAY_AGAIN_S * (1.0 + crc32(me.node.encode()) % 256 / 255) / 2.0


def _job_of(me: Me) -> str:
    return "" if me.last is None else me.last.job


def _worth_telling(failure: Failure | None) -> Failure | None:
    """In full what may be the cause. Of those who lost a peer there can be thousands."""
    return brief(failure) if failure is not None and failure.kind is FailureKind.COMMUNICATION else failure


def _too_late(me: Me, settings: Settings) -> str:
    if me.cut_off_since is not None:
        return f"the store could not be reached for {settings.join_timeout_s:g} s"
    return f"too few nodes came within {settings.join_timeout_s:g} s: at least {settings.min_nodes} are needed"


def _waiting_for(view: View, me: Me, settings: Settings) -> str:
    if me.cut_off_since is not None:
        return f"the store does not answer; waiting for it, up to {settings.join_timeout_s:g} s"
    left = view.broken.nodes_left if view.broken is not None else 0
    enough = f"{settings.min_nodes} are needed; waiting for more, up to {settings.join_timeout_s:g} s"
    if 0 < left < settings.min_nodes:
        return f"{_counted(left, 'is', 'are')} left and {enough}"
    if view.is_whole and len(view.nodes) < settings.min_nodes:
        return f"{_counted(len(view.nodes), 'is', 'are')} here and {enough}"
    return f"waiting for the other nodes, up to {settings.join_timeout_s:g} s"


# What the leader does for all


def _lead(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:  # noqa: PLR0911 - one a rule
    generation, broken = view.generation, view.broken
    refusal = _refusal(view, me, keys)
    if refusal is not None:
        return Decision(me, (refusal,))
    is_late = generation is not None and broken is not None and broken.generation != generation.number
    if is_late or view.is_broken_unreadable:
        # It came late, to a store that has lost its data and counts its revisions anew, or says nothing that anybody
        # understands: nobody else will remove it.
        return Decision(me, (Propose(Transaction(_as_leader(view, keys), (Delete(keys.broken),)), "not broken"),))
    if generation is None or broken is not None:
        return _form(view, me, now, settings, keys)
    on_since = me.on_since if me.on_since[0] == generation.number else (generation.number, now)
    me = replace(me, enough_since=None, over_since=None, on_since=on_since)
    count = len(generation.members)
    if not view.unfinished:
        reason = f"all {count} nodes succeeded" if count > 1 else "the node succeeded"
        return Decision(me, (_end(view, keys, End(EndKind.SUCCEEDED, reason)),))
    if view.lost:
        why = f"lost {_listed(view.lost.values())}"
        lost = tuple(islice(view.lost, NAMED_MAX))
        broken = Broken(generation.number, BreakKind.LOST, why, nodes_left=len(view.nodes), lost=lost)
        return Decision(me, (_break(view, keys, broken),))
    if count < settings.max_nodes and not view.done:
        return _admit(view, generation, me, now, settings, keys)
    return Decision(me)


def _admit(view: View, generation: Generation, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """Break a generation that has room for the nodes that wait, once it is time to let them in."""
    kept_out = {*generation.past.left_out, *view.refused}
    newcomers = {node: host for node, host in view.newcomers.items() if node not in kept_out}
    if not newcomers:
        return Decision(me)
    since = {node: view.since.get(node, now) for node in newcomers}
    admitted_at = admits_at(generation.arrivals, newcomers, since, settings.lease_s)
    wait_s = batch_s(generation.arrivals.joins)
    begins_at = min(max(at, since[node] + wait_s) for node, at in admitted_at.items())
    if now < begins_at:
        return Decision(me, wake_at=begins_at)
    joining = {node: newcomers[node] for node, at in admitted_at.items() if at <= now}
    why = f"letting in {_listed(joining.values())}"
    named = tuple(islice(joining.items(), NAMED_MAX))
    return Decision(me, (_break(view, keys, Broken(generation.number, BreakKind.JOINED, why, joining=named)),))


def _refusal(view: View, me: Me, keys: Keys) -> Propose | None:
    """Tell a node that runs another program that it can never be let in."""
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
            put = Put(f"{keys.refused}{name}", why.encode("utf-8", "backslashreplace"))
            left = islice((each for each in view.refused if each not in view.nodes), NAMED_MAX)
            operations: tuple[Operation, ...] = (put, *(Delete(f"{keys.refused}{each}") for each in left))
            return Propose(Transaction(_as_leader(view, keys), operations), f"refuse {node.host}")
    return None


def _program(view: View, me: Me) -> str:
    """The name of the program that this job runs: what its generations say, or what the leader brings to the first."""
    if view.generation is not None and not _is_of_the_past(view):
        return view.generation.fingerprint.program
    return "" if me.offer is None else me.offer.fingerprint.program


def _is_of_the_past(view: View) -> bool:
    """Whether the last generation is of a job that nobody here took part in: all of its nodes left without an end, and
    others use the same run id now.
    """
    last = view.generation
    if last is None:
        return False
    was_there = any(created < view.generation_revision for created in view.ages.values())
    return not was_there and not any(node.job == last.job for node in view.nodes.values())


def _form(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:  # noqa: PLR0911 - one a rule
    """Write the next generation, once it can be: all of the last one have stopped, and there are enough.

    What else is waited for is counted from when the last one was over: it passes while its processes end.
    """
    me = replace(me, over_since=now if me.over_since is None else me.over_since)
    last = _previous(view, me)
    stopping = view.stopping or view.busy or ({me.node: _name(me)} if me.running not in (0, me.done) else {})
    # A failure that a backup has brought back was judged before.
    judged = None if last is None or stopping or last.number != _number(view.generation) else judge(view, settings)
    count = len(view.nodes.keys() - view.refused.keys()) if view.refused else len(view.nodes)
    is_short = count < settings.min_nodes
    if not is_short:
        me = replace(me, enough_since=now if me.enough_since is None else me.enough_since)
    elif not stopping:
        me = replace(me, enough_since=None)
    word = _say_whether_short(view, count, settings, keys)
    if word is not None:
        return Decision(me, (word,))
    if stopping:
        return Decision(me, status=f"waiting for the workers on {_listed(stopping.values())} to stop")
    ruled = _rule_out(view, me, now, judged, keys)
    if ruled is not None:
        return ruled
    if is_short:
        return _wait_for_more(view, me, last, now, settings, keys)
    doubted = _doubted_until(view, me, settings, now)
    if doubted is not None:
        hosts = _listed([view.lost.get(node, node) for node in view.doubtful])
        return Decision(me, wake_at=doubted, status=f"somebody deleted the records of {hosts}; waiting for it to stop")
    away = _still_away(view, me, settings, now)
    if away is not None:
        return Decision(me, wake_at=away, status="the store has lost the last generation; waiting for its nodes")
    arrivals = _arrivals(view, me, last, now, settings)
    present = _present(view, last, judged, arrivals, settings, now)
    assert me.enough_since is not None
    patience_s = settings.last_call_s if last is None else settings.recall_s
    is_optional = last is not None and (view.broken is None or not is_loss(view))
    last_call = me.enough_since + patience_s
    if len(present) < settings.max_nodes and not is_optional and now < last_call:
        here = _counted(len(view.nodes), "is", "are")
        status = f"{here} here, which is enough; more may come for {last_call - now:.3g} s"
        return Decision(me, wake_at=last_call, status=status)
    return Decision(me, (_next_generation(view, me, last, judged, present, arrivals, settings, keys),))


def _previous(view: View, me: Me) -> Generation | None:
    """The generation that the next one follows: the store's, or what the leader remembers if the store has lost it.

    None for the first one of a job.
    """
    stored = view.generation
    if me.last is not None and me.last.number > _number(stored) and not _has_begun_anew(view, me.last.job):
        return me.last
    return None if _is_of_the_past(view) else stored


def _has_begun_anew(view: View, job: str) -> bool:
    """Whether nodes that are here have begun another job meanwhile, in a store that knew nothing of this one."""
    stored = view.generation
    if stored is None or stored.job == job:
        return False
    return any(node.job == stored.job for node in view.nodes.values())


def _say_whether_short(view: View, present: int, settings: Settings, keys: Keys) -> Propose | None:
    """Start or stop the join timeout of all nodes."""
    guards = _as_leader(view, keys)
    if present < settings.min_nodes and view.short is None:
        put = Put(keys.short, encode(Short(present, settings.min_nodes)))
        return Propose(Transaction(guards, (put,)), f"too few nodes: {present} of {settings.min_nodes}")
    if present >= settings.min_nodes and view.short is not None:
        return Propose(Transaction(guards, (Delete(keys.short),)), "enough nodes")
    return None


def _rule_out(view: View, me: Me, now: float, judged: Judged | None, keys: Keys) -> Decision | None:
    """What the verdict on the last generation has all nodes do before there can be another one, if anything."""
    last = view.generation
    if judged is None or last is None or me.over_since is None:
        return None
    verdict = judged.verdict
    if not judged.ruling.restarts:
        limit = _limit(judged.ruling, last)
        why = f"{_reason(verdict.cause)} ({limit})"
        return Decision(me, (_end(view, keys, End(EndKind.FAILED, why, verdict.cause, verdict.victims, limit)),))
    go_on_at = me.over_since + judged.ruling.pause_s
    if now < go_on_at:
        status = f"{_reason(verdict.cause)}; a pause of {judged.ruling.pause_s:g} s before the next attempt"
        return Decision(me, wake_at=go_on_at, status=status)
    return None


def _wait_for_more(view: View, me: Me, last: Generation | None, now: float, settings: Settings, keys: Keys) -> Decision:
    """There are too few nodes. The job ends if one of its machines is lost again and again."""
    if last is None or settings.restart_policy != AUTO:
        return Decision(me)
    arrivals = _arrivals(view, me, last, now, settings)
    bad = lost_too_often(arrivals, [member.host for member in last.members])
    if not bad:
        return Decision(me)
    why = (
        f"{bad} was lost {dict(arrivals.losses)[bad]} times in a row, each time soon after it came, and without it "
        f"there are too few nodes: at least {settings.min_nodes} are needed"
    )
    return Decision(me, (_end(view, keys, End(EndKind.FAILED, why)),))


def _still_away(view: View, me: Me, settings: Settings, now: float) -> float | None:
    """Until when the leader waits for nodes of a generation that the store has lost, if some are not here: they may not
    have heard of it yet. A node that is silent for the time of a lease has no workers.
    """
    newer = [view.since.get(name, now) for name, node in view.nodes.items() if _newest(node) > me.known]
    if not newer and _has_all_stopped(view, me):
        return None
    # Whoever comes to a store without a generation after it has seen one cannot know what it has missed.
    missed = me.came_at if view.generation is None and me.known else me.lost_at
    lease_s = _longest_lease_s(view, me, settings)
    until = lease_s + max((*newer, me.lost_at, missed))
    if _may_run_unknowingly(view, me):
        until = max(until, me.lost_at + 2 * lease_s)
    return until if now < until else None


def _may_run_unknowingly(view: View, me: Me) -> bool:
    """Whether a node that is here may run the lost generation: it may have renewed its lease at the last moment, and
    heard only then that the record is gone.
    """
    lost = me.missing
    if lost is None or me.lost == _identity(view):
        return False
    nodes = (view.nodes.get(member.node) for member in lost.members if member.node != me.node)
    return any(node is not None and node.stopped < lost.number for node in nodes)


def _doubted_until(view: View, me: Me, settings: Settings, now: float) -> float | None:
    """Until when workers may run on nodes that look lost because their records were deleted, if any may."""
    if not view.doubtful:
        return None
    until = max(now if at is None else at for at in view.doubtful.values()) + _longest_lease_s(view, me, settings)
    return until if now < until else None


def _longest_lease_s(view: View, me: Me, settings: Settings) -> float:
    """After this time of silence no node has workers, whichever lease it has."""
    known_s = view.generation.lease_s if view.generation is not None else 0.0
    return max(settings.lease_s, known_s, me.known_lease_s, *(node.lease_s for node in view.nodes.values()))


def _newest(node: Node) -> int:
    """The newest generation that a node tells of."""
    return max(node.stopped, node.known)


def _has_all_stopped(view: View, me: Me) -> bool:
    """Whether all nodes of the generation that the store has lost are known to have stopped it."""
    if me.last is None or me.licence != me.lost:
        return False
    stopped = {_agent(name) for name, node in view.nodes.items() if node.stopped >= me.known}
    return all(_agent(member.node) in stopped for member in me.last.members)


def _agent(node: str) -> str:
    """The agent that a node's name is of; it takes another one each time it registers."""
    return node.rpartition(".")[0]


def _arrivals(view: View, me: Me, last: Generation | None, now: float, settings: Settings) -> Arrivals:
    """What is remembered of machines that come and go, with what became of the last generation."""
    if last is None:
        return Arrivals()
    lost = dict(view.lost)
    is_join = view.broken is not None and view.broken.kind is BreakKind.JOINED
    if view.broken is not None:
        lost.update((node, host) for node, host in view.broken.joining if node not in view.nodes)
    ran = {node: None if at is None else now - at for node, at in view.seated.items()}
    # A node that was killed is seen for the time of its lease: that is no time in which it stayed.
    stayed = {node: None if ran_s is None else ran_s - last.lease_s for node, ran_s in ran.items()}
    gone = [(host, stayed.get(node, 0.0)) for node, host in lost.items()]
    here = {view.nodes[node].host: ran_s for node, ran_s in ran.items() if ran_s is not None and node in view.nodes}
    number, since = me.on_since
    is_known = any(ran_s is not None for ran_s in ran.values())
    ran_s = now - since if number == last.number and is_known else settings.steady_s
    return remember(last.arrivals, gone, here, has_joined=is_join, ran_s=ran_s, steady_s=settings.steady_s)


def _reason(failure: Failure) -> str:
    return f"rank {failure.rank} on {failure.host} failed: {failure.message}"


def _limit(ruling: Ruling, last: Generation) -> str:
    return ruling.reason if ruling.is_early else f"restarts: {last.restarts} of {last.max_restarts}"


def _present(
    view: View, last: Generation | None, judged: Judged | None, arrivals: Arrivals, settings: Settings, now: float
) -> dict[str, Node]:
    """The nodes that can be in the next generation. Those that were left out or are held back are among them only if
    there are too few without.
    """
    nodes = view.nodes
    if view.refused:
        nodes = {name: node for name, node in nodes.items() if name not in view.refused}
    if last is None:
        return nodes
    left_out = last.past.left_out if judged is None else judged.ruling.past.left_out
    losses = dict(arrivals.losses)
    if not left_out and not losses:
        return nodes
    fit = {name: node for name, node in nodes.items() if name not in left_out}
    members = {member.node for member in last.members}
    steady = {
        name: node
        for name, node in fit.items()
        if name in members or now >= view.since.get(name, now) + hold_back_s(losses.get(node.host, 0), settings.lease_s)
    }
    return next((some for some in (steady, fit) if len(some) >= settings.min_nodes), nodes)


def _next_number(view: View, me: Me) -> int:
    """A number that no node has stopped a generation of: also none whose record the store has lost."""
    known = max(me.known, _number(view.generation))
    told = (newest for node in view.nodes.values() if (newest := _newest(node)) <= known + JUMP_MAX)
    return max(known, *told) + 1


def _next_generation(
    view: View,
    me: Me,
    last: Generation | None,
    judged: Judged | None,
    nodes: dict[str, Node],
    arrivals: Arrivals,
    settings: Settings,
    keys: Keys,
) -> Propose:
    order = seat((member.node for member in last.members) if last else (), nodes, view.ages, settings.max_nodes)
    past = None if judged is None else judged.ruling.past
    number = _next_number(view, me)
    if number > GENERATION_MAX:
        return _end(view, keys, End(EndKind.FAILED, NUMBERS_SPENT))
    made = Generation(
        number=number,
        members=tuple(
            Member(node, nodes[node].host, nodes[node].address, nodes[node].role, nodes[node].workers) for node in order
        ),
        master_address=nodes[order[0]].address,
        master_port=nodes[order[0]].port,
        coordinator_port=nodes[order[0]].coordinator_port,
        restarts=(last.restarts if last else 0) + (judged is not None),
        max_restarts=last.max_restarts if last else settings.max_restarts,
        past=(last.past if last else Remembered())
        if past is None
        else Remembered(past.spent, past.faults, past.signature, past.node, past.blames, past.left_out),
        after=None if judged is None else replace(judged.verdict, cause=brief(judged.verdict.cause)),
        job=last.job if last else f"{me.node}-{number}",
        lost=tuple(islice(view.lost.values(), NAMED_MAX)) if last and is_loss(view) else (),
        lease_s=max(nodes[node].lease_s for node in order),
        arrivals=arrivals,
        fingerprint=last.fingerprint if last else me.offer.fingerprint if me.offer else nodes[order[0]].fingerprint,
    )
    operations = (
        Put(keys.generation, encode(made)),
        Delete(keys.broken),
        Delete(keys.short),
        DeletePrefix(keys.refused),
        Delete(keys.stacks),
        DeletePrefix(keys.done),
        *((DeletePrefix(keys.values_of(_number(view.generation))),) if view.generation else ()),
    )
    what = f"generation {made.number} of {len(order)} nodes"
    return Propose(Transaction(_as_leader(view, keys), operations), what)


def _end(view: View, keys: Keys, end: End) -> Propose:
    """Only the end is kept, so that whoever comes late to this run learns of it."""
    operations = (
        Put(keys.end, encode(end)),
        Delete(keys.generation),
        Delete(keys.broken),
        Delete(keys.short),
        DeletePrefix(keys.refused),
        Delete(keys.stacks),
        DeletePrefix(keys.done),
        DeletePrefix(keys.values),
    )
    return Propose(Transaction(_as_leader(view, keys), operations), f"end: {end.reason}")


def _break(view: View, keys: Keys, broken: Broken) -> Propose:
    return Propose(Transaction(_still_on(view, keys), (Put(keys.broken, encode(broken)),)), f"break: {broken.reason}")


def _still_on(view: View, keys: Keys) -> tuple[Modified | Created, ...]:
    """The generation that we see is the current one, and nobody has broken it."""
    return (Modified(keys.generation, view.generation_revision), absent(keys.broken), absent(keys.end))


def _as_leader(view: View, keys: Keys) -> tuple[Modified | Created, ...]:
    """The generation that we see is the current one, and we lead."""
    leads = Created(keys.leader, view.leader_revision)
    return (Modified(keys.generation, view.generation_revision), leads, absent(keys.end))


def _first(*times: float | None) -> float | None:
    """The first of some times, of which there may be none."""
    return min((at for at in times if at is not None and at < float("inf")), default=None)


def _number(generation: Generation | None) -> int:
    return 0 if generation is None else generation.number


def _name(me: Me) -> str:
    return me.offer.host if me.offer else me.node


def _counted(nodes: int, one: str, many: str) -> str:
    return f"1 node {one}" if nodes == 1 else f"{nodes} nodes {many}"


def _listed(hosts: Collection[str], at_most: int = 4) -> str:
    more = len(hosts) - at_most
    return ", ".join(islice(hosts, at_most)) + (f" and {more} more" if more > 0 else "")
