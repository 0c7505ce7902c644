"""From the events of a node to its part of a run: attempts, failures, verdicts, and the use of its time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.errors.failure import Failure
from holdfast.errors.kind import FailureKind, cause_of
from holdfast.events import schema
from holdfast.report.entries import TORCH_PREFIX, identifier
from holdfast.report.records import Activity, Attempt, Node, Outcome, Span, Stacks, Verdict, WarningNote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.report.entries import Entry, Facts, Log

_ENDS = {each.value: each for each in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.INTERRUPTED, Outcome.CLOSED)}
_ATTEMPT_ENDS = {each.value: each for each in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.STOPPED)}
_OfAttempt = (
    schema.AttemptStarted | schema.AttemptEnded | schema.WorkerFailed | schema.VerdictReached | schema.StacksCollected
)
_OPEN = (Outcome.RUNNING, Outcome.LOST, Outcome.UNKNOWN)


class Presence(Struct):
    """The state of an agent's process: whether it lives, if that is known, and its clock if it does."""

    is_alive: bool | None = None
    monotonic: float | None = None


def node_of(log: Log, directory: str, presence: Presence | None = None) -> Node:
    """A node's part of the run in `log`. `presence` matters only if no end is recorded."""
    node = Node(directory=directory, skipped_lines=log.skipped_lines, is_cut=log.is_cut)
    seen = Presence() if presence is None else presence
    ours = [entry for entry in log.entries if entry.name.startswith(schema.PREFIX)]
    for entry in log.entries:
        _identify(node, entry.metadata)
    if ours:
        _tell(node, ours, log, seen)
    else:
        _tell_as_torch(node, log.entries)
    return node


def agent_of(log: Log) -> tuple[str, int, float]:
    """The host, the process id and the start (Unix seconds) of the agent that wrote a log; "" or 0 if unknown."""
    for entry in log.entries:
        if isinstance(entry.event, schema.RunStarted):
            return entry.metadata.text("hostname"), entry.event.pid, entry.timestamp
    return "", 0, 0.0


def verdict_of(attempt: Attempt) -> Verdict | None:
    """The verdict on an attempt: the recorded one, or one derived from its failures."""
    if attempt.verdict is not None or not attempt.failures:
        return attempt.verdict
    in_order = sorted(attempt.failures, key=lambda failure: (failure.timestamp, failure.rank))
    cause = in_order[cause_of(failure.known_kind() for failure in in_order)]
    victims = sum(failure is not cause and failure.known_kind() is FailureKind.COMMUNICATION for failure in in_order)
    return Verdict(cause=cause, victims=victims)


def _identify(node: Node, metadata: Facts) -> None:
    node.run_id = node.run_id or metadata.text("run_id")
    node.host = node.host or metadata.text("hostname")
    rank = metadata.integer_or_none("group_rank")
    node.group_rank = node.group_rank if rank is None else rank


def _tell(node: Node, ours: list[Entry], log: Log, presence: Presence) -> None:
    clock = [entry.monotonic for entry in log.entries if entry.monotonic is not None]
    zero = min((moment for entry in ours for moment in _beginnings(entry)), default=0.0)
    last = max(clock, default=zero)
    node.started_at = next((entry.timestamp for entry in ours if entry.timestamp), 0.0)
    end: schema.RunEnded | None = None
    ended_at: float | None = None
    for entry in ours:
        event = entry.event
        if isinstance(event, schema.RunStarted):
            _start_run(node, event)
        elif isinstance(event, schema.RunEnded):
            end, ended_at = event, entry.monotonic
        elif isinstance(event, schema.Warned):
            node.warnings.append(WarningNote(text=event.text, rank=event.rank, attempt=event.attempt))
        elif isinstance(event, _OfAttempt) and _is_of_this_node(node, event):  # ignores events of later versions
            _tell_of_attempt(node, event, None if entry.monotonic is None else entry.monotonic - zero)
    if end is not None:
        node.outcome = _ENDS.get(end.outcome, Outcome.UNKNOWN)
        node.reason = end.reason
        node.restarts = node.restarts if end.restarts is None else end.restarts
        last = last if ended_at is None else ended_at
    elif presence.is_alive:
        node.outcome = Outcome.RUNNING
        last = max(last, presence.monotonic or last)
    else:
        node.outcome = Outcome.UNKNOWN if presence.is_alive is None else Outcome.LOST
    node.length_s = max(last - zero, 0.0)
    _close_attempts(node)
    node.spans = list(_spans(node)) if clock else []


def _beginnings(entry: Entry) -> Iterator[float]:
    """The times that an event mentions, including earlier ones that it implies."""
    if entry.monotonic is None:
        return
    yield entry.monotonic
    if isinstance(entry.event, schema.AttemptStarted):
        yield entry.monotonic - max(entry.event.waited_s, 0) - max(entry.event.started_s, 0)


def _is_of_this_node(node: Node, event: _OfAttempt) -> bool:
    """Whether an event concerns this node. A verdict on a generation that a newcomer was not in does not."""
    if not isinstance(event, schema.VerdictReached) or event.generation is None:
        return True
    return any(attempt.generation == event.generation for attempt in node.attempts)


def _start_run(node: Node, event: schema.RunStarted) -> None:
    node.agent = identifier(event.agent)
    node.version = event.version
    node.pid = event.pid
    node.command = list(event.command)
    node.role = event.role
    node.backend = event.backend
    node.nproc = event.nproc
    node.min_nodes = event.min_nodes
    node.max_nodes = event.max_nodes
    node.max_restarts = event.max_restarts


def _tell_of_attempt(node: Node, event: _OfAttempt, at_s: float | None) -> None:
    number = event.attempt
    if number is None:
        number = node.attempts[-1].number if node.attempts else 1
    attempt = _attempt(node, number)
    match event:
        case schema.AttemptStarted():
            _start_attempt(node, attempt, event, at_s)
        case schema.AttemptEnded():
            attempt.outcome = _ATTEMPT_ENDS.get(event.outcome, Outcome.UNKNOWN)
            attempt.reason = event.reason
            attempt.end_s = _ended_s(attempt, at_s, event.ran_s)
        case schema.WorkerFailed():
            attempt.failures.append(event.failure)
        case schema.VerdictReached():
            attempt.verdict = Verdict(
                cause=event.cause, victims=event.victims, decision=event.decision, reason=event.reason
            )
        case schema.StacksCollected():
            attempt.stacks.append(
                Stacks(reason=event.reason, file=event.file, outliers=list(event.outliers), where=list(event.where))
            )


def _start_attempt(node: Node, attempt: Attempt, event: schema.AttemptStarted, at_s: float | None) -> None:
    attempt.job = identifier(event.job)
    node.job = attempt.job or node.job
    attempt.master = event.master
    attempt.restart = event.restart
    attempt.max_restarts = event.max_restarts
    node.max_restarts = node.max_restarts if event.max_restarts is None else event.max_restarts
    attempt.generation = event.generation
    attempt.node = event.node
    attempt.nodes = event.nodes
    attempt.world_size = event.world_size
    attempt.ranks = list(event.ranks)
    attempt.pids = list(event.pids)
    attempt.waited_s = max(event.waited_s, 0.0)
    attempt.started_s = max(event.started_s, 0.0)
    attempt.begin_s = at_s
    node.restarts = max(node.restarts, event.restart)
    node.group_rank = node.group_rank if event.node is None else event.node


def _attempt(node: Node, number: int) -> Attempt:
    for attempt in reversed(node.attempts):
        if attempt.number == number:
            return attempt
    node.attempts.append(Attempt(number=number))
    return node.attempts[-1]


def _ended_s(attempt: Attempt, at_s: float | None, ran_s: float | None) -> float | None:
    """When the workers ended. The event may come later, after the clean-up."""
    if attempt.begin_s is None or ran_s is None:
        return at_s
    ended_s = attempt.begin_s + max(ran_s, 0.0)
    return ended_s if at_s is None else min(ended_s, at_s)


def _close_attempts(node: Node) -> None:
    """Close attempts without a recorded end: with the start of the next attempt, or the end of the run."""
    for place, attempt in enumerate(node.attempts):
        is_last = place == len(node.attempts) - 1
        if attempt.outcome is Outcome.UNKNOWN and attempt.end_s is None:
            if is_last and node.outcome in _OPEN:
                attempt.outcome = node.outcome
            elif attempt.verdict is not None or attempt.failures:
                attempt.outcome = Outcome.FAILED
        if attempt.begin_s is not None and attempt.end_s is None:
            attempt.end_s = node.length_s if is_last else _rendezvous_s(node.attempts[place + 1])


def _rendezvous_s(attempt: Attempt) -> float | None:
    return None if attempt.begin_s is None else attempt.begin_s - attempt.started_s - attempt.waited_s


def _spans(node: Node) -> Iterator[Span]:
    """The use of the node's time from its start to its end, without gaps or overlaps."""
    now, before = 0.0, Activity.STARTING
    for attempt in node.attempts:
        if attempt.begin_s is None:
            continue
        begin_s = min(max(attempt.begin_s, now), node.length_s)
        end_s = min(max(begin_s if attempt.end_s is None else attempt.end_s, begin_s), node.length_s)
        spawn_s = max(begin_s - attempt.started_s, now)
        wait_s = max(spawn_s - attempt.waited_s, now)
        yield from _span(before, now, wait_s)
        yield from _span(Activity.WAITING, wait_s, spawn_s)
        yield from _span(before, spawn_s, begin_s)
        yield from _span(_spent(attempt, is_last=attempt is node.attempts[-1]), begin_s, end_s, attempt.number)
        now, before = end_s, Activity.RESTARTING
    if not node.attempts:
        before = Activity.WAITING  # only a rendezvous delays the start of workers
    elif not _was_to_go_on(node):
        before = Activity.STARTING
    yield from _span(before, now, node.length_s)


def _span(activity: Activity, begin_s: float, end_s: float, attempt: int = 0) -> Iterator[Span]:
    if end_s > begin_s or attempt:
        yield Span(activity=activity, begin_s=begin_s, end_s=end_s, attempt=attempt)


def _spent(attempt: Attempt, *, is_last: bool) -> Activity:
    """Whether an attempt's time counts as training. After a failure elsewhere it is lost, whatever the workers did."""
    if attempt.outcome is Outcome.SUCCEEDED or attempt.outcome is Outcome.RUNNING:
        return Activity.TRAINING
    is_orderly = attempt.outcome is Outcome.STOPPED and attempt.verdict is None
    may_go_on = attempt.outcome is Outcome.UNKNOWN and is_last
    return Activity.TRAINING if is_orderly or may_go_on else Activity.LOST


def _was_to_go_on(node: Node) -> bool:
    """Whether another attempt was to follow the last one, so that the time after it belongs to a restart."""
    if node.outcome in (Outcome.SUCCEEDED, Outcome.INTERRUPTED, Outcome.CLOSED):
        return False
    last = node.attempts[-1]
    if last.verdict is not None:
        return last.verdict.decision == "restart"
    return last.outcome is Outcome.STOPPED or (last.outcome is Outcome.FAILED and node.outcome in _OPEN)


def _tell_as_torch(node: Node, entries: list[Entry]) -> None:
    """Read torch's own events: they record how the workers of each attempt ended, but not when they ran."""
    known = [entry for entry in entries if entry.name.startswith(TORCH_PREFIX)]
    stamps = [entry.timestamp for entry in known if entry.timestamp]
    if stamps:
        node.started_at = min(stamps)
        node.length_s = max(stamps) - min(stamps)
    for entry in known:
        state = entry.metadata.text("state")
        if entry.source == "WORKER":
            _worker_ended(node, entry, state)
        elif state in ("SUCCEEDED", "FAILED"):
            node.outcome = Outcome(state.lower())
            node.restarts = entry.metadata.integer("agent_restarts", node.restarts)
        node.role = node.role or entry.metadata.text("role")
        node.backend = node.backend or entry.metadata.text("rdzv_backend")


def _worker_ended(node: Node, entry: Entry, state: str) -> None:
    restarts = entry.metadata.integer("agent_restarts")
    attempt = _attempt(node, restarts + 1)
    attempt.restart = restarts
    more = entry.metadata.facts("metadata")
    rank = entry.metadata.integer("global_rank", -1)
    attempt.ranks.append(rank)
    attempt.nodes = more.integer("group_world_size", attempt.nodes)
    attempt.world_size = max([*more.integers("role_world_size"), attempt.world_size])
    if state == "FAILED":
        attempt.outcome = Outcome.FAILED
        attempt.failures.append(
            Failure(
                rank=rank,
                local_rank=next(iter(more.integers("local_rank")), -1),
                host=entry.metadata.text("hostname"),
                pid=next(iter(more.integers("worker_pid")), 0),
                exit_code=next(iter(more.integers("exit_code")), None),
                message=_raw_error(entry.metadata),
                timestamp=entry.timestamp,
            )
        )
    elif state == "SUCCEEDED" and attempt.outcome is not Outcome.FAILED:
        attempt.outcome = Outcome.SUCCEEDED


def _raw_error(metadata: Facts) -> str:
    """The text of an error, which torch writes as the content of an error file."""
    written = metadata.facts("raw_error").facts("message")
    extra = written.facts("extraInfo").text("py_callstack")
    return extra or written.text("message") or metadata.text("raw_error")
