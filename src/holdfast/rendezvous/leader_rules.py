"""The leader's rules: judge a generation that is over, form the next one, let nodes in, end the job. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.coordination.model import Created, Delete, DeletePrefix, Put, Transaction
from holdfast.rendezvous.admission import admits_at, batch_s, hold_back_s, lost_too_often, remember
from holdfast.rendezvous.decision import (
    NAMED_MAX,
    Decision,
    Me,
    Propose,
    Settings,
    as_leader,
    break_up,
    counted,
    first,
    identity_of,
    is_of_the_past,
    listed,
    longest_lease_s,
    name_of,
    number_of,
    reason_of,
)
from holdfast.rendezvous.judging import is_loss, judge
from holdfast.rendezvous.records import (
    GENERATION_MAX,
    Arrivals,
    BreakKind,
    Broken,
    End,
    EndKind,
    Generation,
    Member,
    Node,
    Remembered,
    Short,
    agent_of,
    brief,
    encode,
)
from holdfast.rendezvous.refusals import admissible, refuse, refused_next
from holdfast.rendezvous.seating import seat
from holdfast.settings import AUTO

if TYPE_CHECKING:
    from holdfast.rendezvous.judging import Judged
    from holdfast.rendezvous.records import Keys
    from holdfast.rendezvous.restarts import Ruling
    from holdfast.rendezvous.view import View


JUMP_MAX = 1 << 32
"""The most by which a node's report can raise the number of the next generation. No job has this many generations. A
node that claims the largest possible number must not exhaust the numbers."""

NUMBERS_SPENT = "a record in the store has a generation number that no agent writes; choose another --rdzv-id"


def lead(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    unwanted = refused_next(view, me, settings, now)
    if unwanted is None:
        return _lead(view, me, now, settings, keys)
    name, why, at, because_of = unwanted
    if now < at:
        decision = _lead(view, me, now, settings, keys)
        return replace(decision, wake_at=first(decision.wake_at, at))
    refusal = refuse(view, name, why, keys, because_of)
    return _lead(view, me, now, settings, keys) if refusal is None else Decision(me, (refusal,))


def _lead(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    generation, broken = view.generation, view.broken
    is_late = generation is not None and broken is not None and broken.generation != generation.number
    if is_late or view.is_broken_unreadable:
        # The record came late, to a store that has lost its data and restarted its revisions, or it is unreadable.
        # Nobody else will remove it.
        return Decision(me, (Propose(Transaction(as_leader(view, keys), (Delete(keys.broken),)), "not broken"),))
    if generation is None or broken is not None:
        return _form(view, me, now, settings, keys)
    on_since = me.on_since if me.on_since[0] == generation.number else (generation.number, now)
    me = replace(me, enough_since=None, over_since=None, on_since=on_since)
    count = len(generation.members)
    if not view.unfinished:
        reason = f"all {count} nodes succeeded" if count > 1 else "the node succeeded"
        return Decision(me, (_end(view, keys, End(EndKind.SUCCEEDED, reason)),))
    if view.lost:
        why = f"lost {listed(view.lost.values())}"
        lost = tuple(islice(view.lost, NAMED_MAX))
        broken = Broken(generation.number, BreakKind.LOST, why, nodes_left=len(view.nodes), lost=lost)
        return Decision(me, (break_up(view, keys, broken),))
    if count < settings.max_nodes and not view.done:
        return _admit(view, generation, me, now, settings, keys)
    return Decision(me)


def _admit(view: View, generation: Generation, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:
    """Break a generation that has room for waiting nodes, once it is time to let them in."""
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
    why = f"letting in {listed(joining.values())}"
    named = tuple(islice(joining.items(), NAMED_MAX))
    return Decision(me, (break_up(view, keys, Broken(generation.number, BreakKind.JOINED, why, joining=named)),))


def _form(view: View, me: Me, now: float, settings: Settings, keys: Keys) -> Decision:  # noqa: PLR0911 - one a rule
    """Write the next generation once all nodes of the last one have stopped and there are enough nodes.

    All other waits count from the end of the last generation: they pass while its processes end.
    """
    me = replace(me, over_since=now if me.over_since is None else me.over_since)
    last = _previous(view, me)
    stopping = view.stopping or view.busy or ({me.node: name_of(me)} if me.running not in (0, me.done) else {})
    # A failure that a restored backup brings back was judged before.
    judged = None if last is None or stopping or last.number != number_of(view.generation) else judge(view, settings)
    count = len(admissible(view, settings))
    is_short = count < settings.min_nodes
    if not is_short:
        me = replace(me, enough_since=now if me.enough_since is None else me.enough_since)
    elif not stopping:
        me = replace(me, enough_since=None)
    word = _say_whether_short(view, count, settings, keys)
    if word is not None:
        return Decision(me, (word,))
    if stopping:
        return Decision(me, status=f"waiting for the workers on {listed(stopping.values())} to stop")
    ruled = _rule_out(view, me, now, judged, keys)
    if ruled is not None:
        return ruled
    if is_short:
        return _wait_for_more(view, me, last, now, settings, keys)
    doubted = _doubted_until(view, me, settings, now)
    if doubted is not None:
        hosts = listed([view.lost.get(node, node) for node in view.doubtful])
        status = f"the lease of {hosts} was not seen to end; waiting until its workers must be gone"
        return Decision(me, wake_at=doubted, status=status)
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
        here = counted(len(view.nodes), "is", "are")
        status = f"{here} here, which is enough; waiting {_rounded(last_call - now)} s for more"
        return Decision(me, wake_at=last_call, status=status)
    return Decision(me, (_next_generation(view, me, last, judged, present, arrivals, settings, keys),))


def _rounded(seconds: float) -> str:
    """Whole seconds for a reader; tenths below one."""
    return f"{seconds:.0f}" if seconds >= 1 else f"{seconds:.1g}"


def _previous(view: View, me: Me) -> Generation | None:
    """The generation that the next one follows: the store's, or the leader's memory of it if the store has lost it.

    None for the first generation of a job.
    """
    stored = view.generation
    if me.last is not None and me.last.number > number_of(stored) and not _has_begun_anew(view, me.last.job):
        return me.last
    return None if is_of_the_past(view) else stored


def _has_begun_anew(view: View, job: str) -> bool:
    """Whether present nodes have begun another job meanwhile, in a store that knew nothing of this one."""
    stored = view.generation
    if stored is None or stored.job == job:
        return False
    return any(node.job == stored.job for node in view.nodes.values())


def _say_whether_short(view: View, present: int, settings: Settings, keys: Keys) -> Propose | None:
    """Start or stop the join timeout of all nodes."""
    guards = as_leader(view, keys)
    if present < settings.min_nodes and view.short is None:
        put = Put(keys.short, encode(Short(present, settings.min_nodes)))
        return Propose(Transaction(guards, (put,)), f"too few nodes: {present} of {settings.min_nodes}")
    if present >= settings.min_nodes and view.short is not None:
        return Propose(Transaction(guards, (Delete(keys.short),)), "enough nodes")
    return None


def _rule_out(view: View, me: Me, now: float, judged: Judged | None, keys: Keys) -> Decision | None:
    """What the verdict on the last generation requires before the next one: the job's end, a pause, or nothing."""
    last = view.generation
    if judged is None or last is None or me.over_since is None:
        return None
    verdict = judged.verdict
    if not judged.ruling.restarts:
        limit = _limit(judged.ruling, last)
        why = f"{reason_of(verdict.cause)} ({limit})"
        return Decision(me, (_end(view, keys, End(EndKind.FAILED, why, verdict.cause, verdict.victims, limit)),))
    go_on_at = me.over_since + judged.ruling.pause_s
    if now < go_on_at:
        status = f"{reason_of(verdict.cause)}; waiting {judged.ruling.pause_s:g} s before the next attempt"
        return Decision(me, wake_at=go_on_at, status=status)
    return None


def _wait_for_more(view: View, me: Me, last: Generation | None, now: float, settings: Settings, keys: Keys) -> Decision:
    """Wait for more nodes. The job ends if one of its machines is lost again and again."""
    if last is None or settings.restarts.policy != AUTO:
        return Decision(me)
    arrivals = _arrivals(view, me, last, now, settings)
    bad = lost_too_often(arrivals, [member.host for member in last.members])
    if not bad:
        return Decision(me)
    why = (
        f"{bad} was lost {dict(arrivals.losses)[bad]} times in a row, each time soon after it joined, and without it "
        f"there are too few nodes: at least {settings.min_nodes} are needed"
    )
    return Decision(me, (_end(view, keys, End(EndKind.FAILED, why)),))


def _still_away(view: View, me: Me, settings: Settings, now: float) -> float | None:
    """Until when the leader waits for nodes of a generation that the store has lost, if some are missing.

    They may not have heard of the loss yet. A node that was silent for the length of a lease has no workers.
    """
    ours = {generation.job for generation in (me.last, me.newest, me.missing) if generation is not None}
    newer = [
        view.since.get(name, now)
        for name, node in view.nodes.items()
        if _newest(node) > me.known or (node.known_job and node.known_job not in ours)
    ]
    if not newer and _has_all_stopped(view, me):
        return None
    # A node that comes to a store without a generation, but has seen one before, cannot know what it has missed.
    missed = me.came_at if view.generation is None and me.known else me.lost_at
    lease_s = longest_lease_s(view, me, settings)
    until = lease_s + max((*newer, me.lost_at, missed))
    if _may_run_unknowingly(view, me):
        until = max(until, me.lost_at + 2 * lease_s)
    return until if now < until else None


def _may_run_unknowingly(view: View, me: Me) -> bool:
    """Whether a present node may still run the lost generation.

    It may have renewed its lease at the last moment, and heard only then that the record is gone.
    """
    lost = me.missing
    if lost is None or me.lost == identity_of(view):
        return False
    nodes = (view.nodes.get(member.node) for member in lost.members if member.node != me.node)
    return any(node is not None and node.stopped < lost.number for node in nodes)


def _doubted_until(view: View, me: Me, settings: Settings, now: float) -> float | None:
    """Until when workers may run on nodes that only look lost because their records were deleted; None if none may."""
    if not view.doubtful:
        return None
    until = max(now if at is None else at for at in view.doubtful.values()) + longest_lease_s(view, me, settings)
    return until if now < until else None


def _newest(node: Node) -> int:
    """The newest generation that a node reports."""
    return max(node.stopped, node.known)


def _has_all_stopped(view: View, me: Me) -> bool:
    """Whether all nodes of the generation that the store has lost are known to have stopped it.

    The leader cannot tell if it was away: a newer generation may have begun without it.
    """
    if me.last is None or me.licence != me.lost or me.has_lapsed:
        return False
    stopped = {agent_of(name) for name, node in view.nodes.items() if node.stopped >= me.known}
    return all(agent_of(member.node) in stopped for member in me.last.members)


def _arrivals(view: View, me: Me, last: Generation | None, now: float, settings: Settings) -> Arrivals:
    """The record of machines that come and go, updated with the last generation."""
    if last is None:
        return Arrivals()
    lost = dict(view.lost)
    is_join = view.broken is not None and view.broken.kind is BreakKind.JOINED
    if view.broken is not None:
        lost.update((node, host) for node, host in view.broken.joining if node not in view.nodes)
    ran = {node: None if at is None else now - at for node, at in view.seated.items()}
    # A killed node still looks alive for the length of its lease: that time does not count.
    stayed = {node: None if ran_s is None else ran_s - last.lease_s for node, ran_s in ran.items()}
    gone = [(host, stayed.get(node, 0.0)) for node, host in lost.items()]
    here = {view.nodes[node].host: ran_s for node, ran_s in ran.items() if ran_s is not None and node in view.nodes}
    number, since = me.on_since
    is_known = any(ran_s is not None for ran_s in ran.values())
    ran_s = now - since if number == last.number and is_known else settings.steady_s
    return remember(last.arrivals, gone, here, has_joined=is_join, ran_s=ran_s, steady_s=settings.steady_s)


def _limit(ruling: Ruling, last: Generation) -> str:
    return ruling.reason if ruling.is_early else f"restarts: {last.restarts} of {last.max_restarts}"


def _present(
    view: View, last: Generation | None, judged: Judged | None, arrivals: Arrivals, settings: Settings, now: float
) -> dict[str, Node]:
    """The nodes that can be in the next generation.

    Nodes that were left out or are held back are included only if there are too few without them.
    """
    nodes = admissible(view, settings)
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
    """A number above every generation that a node has stopped or heard of, even if the store has lost its record."""
    known = max(me.known, number_of(view.generation))
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
        *((DeletePrefix(keys.values_of(number_of(view.generation))),) if view.generation else ()),
    )
    what = f"generation {made.number} of {len(order)} nodes"
    # A backup that is restored meanwhile may know nothing of the last generation's end.
    guards = (*as_leader(view, keys), Created(keys.broken, view.broken_revision))
    return Propose(Transaction(guards, operations), what)


def _end(view: View, keys: Keys, end: End) -> Propose:
    """End the job. Only the end's record stays, for agents that come late to this run."""
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
    return Propose(Transaction(as_leader(view, keys), operations), f"end: {end.reason}")
