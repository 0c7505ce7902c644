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
- A generation that failed is judged when all of its nodes have stopped and said what became of their workers: the
  cause is the first failure, in the store's order, that is not the victim of another. `restarts` says what follows.
- The job ends with one record: all members are done, or one failed and no restart is left.

`decide` is called whenever anything may have changed. It says what should be so, not what is new: it can be asked again
at any time, and a transaction that comes too late fails its guards and changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.coordination.model import Created, Delete, DeletePrefix, Modified, Put, Transaction, absent
from holdfast.errors.kind import FailureKind, cause_of
from holdfast.rendezvous.records import (
    BreakKind,
    Broken,
    End,
    EndKind,
    Failure,
    Generation,
    Member,
    Node,
    Remembered,
    Verdict,
    brief,
    encode,
)
from holdfast.rendezvous.restarts import AUTO, Fault, Limits, Past, Ruling, place, rule
from holdfast.rendezvous.seating import seat

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.rendezvous.records import Keys
    from holdfast.rendezvous.view import View


SOMETHING = Node(host="", address="", port=0, role="", workers=0)
"""What the store has of a node that put itself there and never heard of it."""

LEASE_LOST = "this node could not renew its lease in time, and the others count it as lost"


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
    """How long a node waits for enough nodes."""

    restart_window_s: float = 0.0
    """How long workers must have run before a failure for the restarts to be counted anew; 0 for never."""

    restart_policy: str = AUTO


class Me(Struct, frozen=True):
    """This node. `running` and `stopped` are generations: the one whose workers may be alive here, and the newest one
    whose workers are known to have ended. `published` is what the store has of us.

    `stop_by` is when workers have to be told to stop because the lease cannot be renewed, and `cut_off_since` when the
    store answered last, if it does not. `over_since` and `enough_since` are a leader's: when it saw that the last
    generation was over, and that there were nodes enough for another.
    """

    node: str = ""
    lease: int = 0
    offer: Node | None = None
    published: Node | None = None
    running: int = 0
    stopped: int = 0
    done: int = 0
    is_done_published: bool = False
    failure: Failure | None = None
    leaving: str = ""
    closing: End | None = None
    store_is_gone: bool = False
    stop_by: float = float("inf")
    cut_off_since: float | None = None
    waiting_since: float | None = None
    enough_since: float | None = None
    over_since: float | None = None


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
    """Stop the workers. They `may_finish` what they are at if nobody is lost and nothing has failed."""

    reason: str
    may_finish: bool = False


class Leave(Struct, frozen=True):
    """This node's part is over: the job's end, or None if too few nodes came in time or the store is gone."""

    end: End | None
    reason: str


Action: TypeAlias = Join | Propose | Start | Stop | Leave


class Decision(Struct, frozen=True):
    """What to do; what this node remembers of it; when to ask again if nothing happens; and a line for people."""

    me: Me
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    status: str = ""


def decide(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """What `me` does, given what it sees."""
    mine = _my_part(view, me, now, settings, keys)
    me = mine.me
    # A leader leads also while its own workers stop.
    is_busy = any(not isinstance(action, Stop) for action in mine.actions)
    if is_busy or me.published is None or view.end is not None or me.store_is_gone:
        return mine
    if view.leader is None:
        return replace(mine, actions=(*mine.actions, Propose(_claim(me, keys), "lead")))
    if view.leader != me.node or not view.is_whole:
        return mine
    led = _lead(view, me, now, settings, keys)
    wakes = [at for at in (mine.wake_at, led.wake_at) if at is not None]
    return Decision(
        led.me, (*mine.actions, *led.actions), wake_at=min(wakes, default=None), status=led.status or mine.status
    )


def registration(me: Me, keys: Keys) -> Transaction:
    """Put this node into the store, once. If an answer was lost, what was put then may come late, but never again."""
    assert me.offer is not None
    key = keys.node(me.node)
    return Transaction((absent(key), absent(keys.end)), (Put(key, encode(me.offer), me.lease),))


def _claim(me: Me, keys: Keys) -> Transaction:
    return Transaction((absent(keys.leader), absent(keys.end)), (Put(keys.leader, me.node.encode(), me.lease),))


# What every node does for itself


def _my_part(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:  # noqa: PLR0911 - one a rule
    is_done = 0 < me.running == me.done
    if me.running and not is_done:
        reason = _reason_to_stop(view, me, now)
        if reason is not None:
            return Decision(me, (reason,))
        if me.failure is not None or me.leaving:
            return Decision(me, _speak_up(view, me, keys))
        return Decision(me, wake_at=None if me.stop_by == float("inf") else me.stop_by)
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
        return _wait_for_the_others(view, me, keys)
    if me.offer is None:
        return Decision(me)
    return _seek_a_place(view, me, now, settings, keys)


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
    if generation is not None and generation.number > me.running:
        return Stop(f"the others went on without this node, to generation {generation.number}")
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


def _wait_for_the_others(view: View, me: Me, keys: Keys) -> Decision:
    """All workers here succeeded. If the generation breaks nevertheless, this node is needed again."""
    if view.generation is None or view.generation.number > me.running:
        return Decision(me, (Stop("the others went on without this node"),))
    if view.broken is not None:
        return Decision(me, (_stop(view.broken),))
    if me.is_done_published:
        # Whatever becomes of our lease: the others know. But somebody has to be there to lead.
        status = "the workers of this node are done; waiting for the other nodes"
        return Decision(me, () if me.published else (Join(),), status=status)
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
        me = replace(me, running=generation.number, waiting_since=None, failure=None)
        return Decision(me, (Start(generation),))
    is_spare = is_on and not is_member
    me = replace(me, waiting_since=None if is_spare else now if me.waiting_since is None else me.waiting_since)
    deadlines = [since + settings.join_timeout_s for since in (me.waiting_since, me.cut_off_since) if since is not None]
    deadline = min(deadlines, default=None)
    if deadline is not None and now >= deadline:
        return Decision(me, (Leave(None, _too_late(me, settings)),))
    status = _waiting_for(view, settings)
    if generation is not None and is_spare:
        role = "was left out because it failed again and again" if _is_left_out(generation, me) else "waits as a spare"
        status = f"{_counted(len(generation.members), 'runs', 'run')}; this one {role}"
    elif is_member:
        if is_on:
            actions = _give_up(view, me, keys) if has_started else ()
            return Decision(me, actions, deadline, status)
        me = replace(me, stopped=_number(generation))
    return _offer(view, me, deadline, status, keys)


def _give_up(view: View, me: Me, keys: Keys) -> tuple[Action, ...]:
    """This node is in a generation that is on, and had to stop its workers."""
    if me.failure is not None:
        return _speak_up(view, me, keys)
    broken = Broken(_number(view.generation), BreakKind.LOST, f"{_name(me)} had to stop its workers")
    return (_break(view, keys, broken),)


def _offer(view: View, me: Me, deadline: float | None, status: str, keys: Keys) -> Decision:
    """See to it that the store has what this node offers."""
    assert me.offer is not None
    offer = replace(me.offer, stopped=me.stopped, failure=_worth_telling(me.failure))
    me = replace(me, offer=offer)
    if not me.lease or me.published is None:
        return Decision(me, (Join(),), deadline, status)
    if me.published != offer:
        put = Put(keys.node(me.node), encode(offer), me.lease)
        # Guarded by what it answers: should it come late, it must not take back what was said since.
        guards = (Modified(keys.generation, view.generation_revision), absent(keys.end))
        ready = Propose(Transaction(guards, (put,)), "ready", publishes=offer)
        return Decision(me, (ready,), deadline, status)
    return Decision(me, wake_at=deadline, status=status)


def _worth_telling(failure: Failure | None) -> Failure | None:
    """In full what may be the cause. Of those who lost a peer there can be thousands."""
    return brief(failure) if failure is not None and failure.kind is FailureKind.COMMUNICATION else failure


def _too_late(me: Me, settings: Settings) -> str:
    if me.cut_off_since is not None:
        return f"the store could not be reached for {settings.join_timeout_s:g} s"
    return f"too few nodes came within {settings.join_timeout_s:g} s: at least {settings.min_nodes} are needed"


def _waiting_for(view: View, settings: Settings) -> str:
    left = view.broken.nodes_left if view.broken is not None else 0
    enough = f"{settings.min_nodes} are needed; waiting for more, up to {settings.join_timeout_s:g} s"
    if 0 < left < settings.min_nodes:
        return f"{_counted(left, 'is', 'are')} left and {enough}"
    if view.is_whole and len(view.nodes) < settings.min_nodes:
        return f"{_counted(len(view.nodes), 'is', 'are')} here and {enough}"
    return f"waiting for the other nodes, up to {settings.join_timeout_s:g} s"


# What the leader does for all


def _lead(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    generation, broken = view.generation, view.broken
    if generation is None or broken is not None:
        return _form(view, me, now, settings, keys)
    me = replace(me, enough_since=None, over_since=None)
    count = len(generation.members)
    if not view.unfinished:
        reason = f"all {count} nodes succeeded" if count > 1 else "the node succeeded"
        return Decision(me, (_end(view, keys, End(EndKind.SUCCEEDED, reason)),))
    if view.lost:
        why = f"lost {_listed(view.lost.values())}"
        broken = Broken(generation.number, BreakKind.LOST, why, nodes_left=len(view.nodes))
        return Decision(me, (_break(view, keys, broken),))
    newcomers = {node: host for node, host in view.newcomers.items() if node not in generation.past.left_out}
    if newcomers and count < settings.max_nodes and not view.done:
        hosts = _listed(newcomers.values())
        return Decision(me, (_break(view, keys, Broken(generation.number, BreakKind.JOINED, f"letting in {hosts}")),))
    return Decision(me)


def _form(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """Write the next generation, once it can be: all of the last one have stopped, and there are enough.

    What else is waited for is counted from when the last one was over: it passes while its processes end.
    """
    last, broken = view.generation, view.broken
    over_since = now if me.over_since is None else me.over_since
    me = replace(me, over_since=over_since)
    if view.stopping:
        if len(_present(view, None, settings)) >= settings.min_nodes:
            me = replace(me, enough_since=now if me.enough_since is None else me.enough_since)
        return Decision(me, status=f"waiting for the workers on {_listed(view.stopping.values())} to stop")
    judged = _judge(view, settings)
    if judged is not None and not judged.ruling.restarts and last is not None and broken is not None:
        verdict = judged.verdict
        limit = _limit(judged.ruling, last)
        why = f"{_reason(verdict.cause)} ({limit})"
        return Decision(me, (_end(view, keys, End(EndKind.FAILED, why, verdict.cause, verdict.victims, limit)),))
    if judged is not None and judged.ruling.pause_s:
        go_on_at = over_since + judged.ruling.pause_s
        if now < go_on_at:
            status = f"{_reason(judged.verdict.cause)}; a pause of {judged.ruling.pause_s:g} s before the next attempt"
            return Decision(me, wake_at=go_on_at, status=status)
    present = _present(view, judged, settings)
    if len(present) < settings.min_nodes:
        return Decision(replace(me, enough_since=None))
    me = replace(me, enough_since=now if me.enough_since is None else me.enough_since)
    assert me.enough_since is not None
    patience_s = settings.last_call_s if last is None else settings.recall_s
    is_optional = last is not None and (broken is None or not _is_loss(view))
    last_call = me.enough_since + patience_s
    if len(present) < settings.max_nodes and not is_optional and now < last_call:
        here = _counted(len(view.nodes), "is", "are")
        status = f"{here} here, which is enough; more may come for {last_call - now:.3g} s"
        return Decision(me, wake_at=last_call, status=status)
    return Decision(me, (_next_generation(view, judged, present, settings, keys),))


class _Judged(Struct, frozen=True):
    """What the last generation failed of, and what follows."""

    verdict: Verdict
    ruling: Ruling


def _judge(view: View, settings: Settings) -> _Judged | None:
    """The verdict on the last generation, once all of its nodes have said what became of their workers.

    None if it did not fail, or failed only because a node was lost: the others' workers then lose their peers, often
    before anybody knows of the loss.
    """
    last, broken = view.generation, view.broken
    if last is None or broken is None or broken.failure is None or broken.kind is not BreakKind.FAILED:
        return None
    failures = _failures(view, broken.failure, last.number)
    cause = failures[cause_of(failure.kind for failure in failures)]
    if _is_loss(view):
        return None
    verdict = Verdict(cause, sum(1 + failure.others for failure in failures) - 1)
    fault = Fault(
        cause.kind,
        cause.ran_s,
        place(cause.kind, cause.exception, cause.where, cause.ran_s),
        cause.hopeless,
        cause.node,
    )
    past = last.past
    limits = Limits(last.max_restarts, settings.restart_window_s, settings.restart_policy)
    remembered = Past(past.spent, past.faults, past.place, past.node, past.blames, past.left_out)
    return _Judged(verdict, rule(remembered, fault, limits))


def _is_loss(view: View) -> bool:
    """Whether the last generation is over because a node is gone: said so, or seen by those who lost their peers."""
    broken = view.broken
    if broken is None or broken.failure is None or view.generation is None:
        return broken is not None and broken.kind is BreakKind.LOST
    failures = _failures(view, broken.failure, view.generation.number)
    return bool(view.lost) and all(failure.kind is FailureKind.COMMUNICATION for failure in failures)


def _failures(view: View, first: Failure, generation: int) -> list[Failure]:
    """All failures of the generation in the order in which the store heard of them; clocks are never compared. What a
    node said last is what it knows best.
    """
    told = {
        name: node.failure
        for name, node in sorted(view.nodes.items(), key=lambda item: view.said[item[0]])
        if node.failure is not None and node.stopped == generation and name in view.said
    }
    again = next((name for name, failure in told.items() if failure.rank == first.rank), "")
    if not again and first.kind is FailureKind.COMMUNICATION:
        again = first.node  # it found the cause since, and counts the first among the others
    return [told.pop(again, first), *told.values()]


def _reason(failure: Failure) -> str:
    return f"rank {failure.rank} on {failure.host} failed: {failure.message}"


def _limit(ruling: Ruling, last: Generation) -> str:
    return ruling.reason if ruling.is_early else f"restarts: {last.restarts} of {last.max_restarts}"


def _present(view: View, judged: _Judged | None, settings: Settings) -> dict[str, Node]:
    """The nodes that can be in the next generation: without those left out, if the others suffice."""
    last = view.generation
    left_out = () if last is None else last.past.left_out if judged is None else judged.ruling.past.left_out
    present = {name: node for name, node in view.nodes.items() if name not in left_out}
    return present if len(present) >= settings.min_nodes else view.nodes


def _is_left_out(generation: Generation, me: Me) -> bool:
    return me.node in generation.past.left_out


def _next_generation(
    view: View, judged: _Judged | None, nodes: dict[str, Node], settings: Settings, keys: Keys
) -> Propose:
    last = view.generation
    order = seat((member.node for member in last.members) if last else (), nodes, view.ages, settings.max_nodes)
    past = None if judged is None else judged.ruling.past
    made = Generation(
        number=_number(last) + 1,
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
        else Remembered(past.spent, past.faults, past.place, past.node, past.blames, past.left_out),
        after=None if judged is None else replace(judged.verdict, cause=brief(judged.verdict.cause)),
    )
    operations = (
        Put(keys.generation, encode(made)),
        Delete(keys.broken),
        Delete(keys.stacks),
        DeletePrefix(keys.done),
        *((DeletePrefix(keys.values_of(last.number)),) if last else ()),
    )
    what = f"generation {made.number} of {len(order)} nodes"
    return Propose(Transaction(_as_leader(view, keys), operations), what)


def _end(view: View, keys: Keys, end: End) -> Propose:
    """Only the end is kept, so that whoever comes late to this run learns of it."""
    operations = (
        Put(keys.end, encode(end)),
        Delete(keys.generation),
        Delete(keys.broken),
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


def _number(generation: Generation | None) -> int:
    return 0 if generation is None else generation.number


def _name(me: Me) -> str:
    return me.offer.host if me.offer else me.node


def _counted(nodes: int, one: str, many: str) -> str:
    return f"1 node {one}" if nodes == 1 else f"{nodes} nodes {many}"


def _listed(hosts: Collection[str], at_most: int = 4) -> str:
    more = len(hosts) - at_most
    return ", ".join(islice(hosts, at_most)) + (f" and {more} more" if more > 0 else "")
