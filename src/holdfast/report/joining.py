"""Join the parts of several agents into a job. Pure.

Agents of one job have its id, which the rendezvous gave them. Static nodes (``--node-rank``) share no id. They are
joined only if they certainly belong together; see `linked`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.report.entries import LOG_MAX_BYTES, LOG_MAX_LINES
from holdfast.report.records import Activity, Outcome, Round, Run
from holdfast.report.timeline import verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.report.records import Attempt, Node

_BY_WEIGHT = (
    *(Outcome.RUNNING, Outcome.FAILED, Outcome.SUCCEEDED, Outcome.INTERRUPTED),
    *(Outcome.CLOSED, Outcome.LOST, Outcome.UNKNOWN),
)
"""The order in which an agent's outcome decides the job's. An agent fails only if the job fails. An agent may succeed
before the job ends: once its workers are done, it leaves if the others take too long, or if it is cut off. Otherwise,
if one agent succeeded, so did the job, whatever happened to the agents that left."""

_BY_WEIGHT_WITHOUT_ID = (
    *(Outcome.RUNNING, Outcome.FAILED, Outcome.LOST, Outcome.INTERRUPTED),
    *(Outcome.CLOSED, Outcome.UNKNOWN, Outcome.SUCCEEDED),
)
"""The same for nodes that cannot go on without each other: the job has succeeded only if all of them have."""

_LOST_NAMED_MAX = 8
"""How many agents without a recorded end have a note of their own."""

_ATTEMPTS_BY_WEIGHT = (
    *(Outcome.FAILED, Outcome.RUNNING, Outcome.STOPPED, Outcome.SUCCEEDED),
    *(Outcome.LOST, Outcome.UNKNOWN),
)

_ENDED = (Outcome.FAILED, Outcome.STOPPED, Outcome.SUCCEEDED)


def run_of(nodes: Iterable[Node], notes: Iterable[str] = ()) -> Run:
    """The job that these agents were in. There must be at least one agent."""
    agents = list(nodes)
    last = max((attempt.key for node in agents for attempt in node.attempts), key=_in_order, default=None)
    _mark_those_left_behind(agents, last)
    by_rank = sorted(agents, key=lambda node: _place(node, last))
    rounds = _rounds(by_rank)
    _count_as_lost(rounds, by_rank)
    _extend_the_lost(rounds, by_rank)
    weight = _BY_WEIGHT if any(map(_is_elastic, by_rank)) else _BY_WEIGHT_WITHOUT_ID
    outcome = min((node.outcome for node in by_rank), key=weight.index)
    reason = next((node.reason for node in by_rank if node.outcome is outcome and node.reason), "")
    failed = [each for each in rounds if each.verdict is not None]
    final = [each for each in failed if each.verdict is not None and each.verdict.decision == "stop"]
    return Run(
        run_id=by_rank[0].run_id,
        job=next((name for node in by_rank for name in (node.job, node.agent) if name), ""),
        outcome=outcome,
        reason=reason,
        verdict=(final or failed)[-1].verdict if failed else None,
        nodes=by_rank,
        rounds=rounds,
        notes=[*notes, *_notes(by_rank)],
    )


def together(node: Node, others: Iterable[Node]) -> list[Node]:
    """`node`, and those of `others` that were in the same job."""
    if node.job:
        return [node, *(other for other in others if other.job == node.job)]
    chosen = [node]
    left = [other for other in others if not other.job]
    while True:
        near = [other for other in left if any(linked(other, each) for each in chosen)]
        # Two agents claim the same place, and nothing shows which one had it.
        found = [
            each for each in near if not any(_conflict(each, other) for other in (*chosen, *near) if other is not each)
        ]
        if not found:
            return chosen
        chosen += found
        left = [other for other in left if not any(other is each for each in found)]


def linked(node: Node, other: Node) -> bool:
    """Whether two agents without a job id were certainly in one job.

    They had the same run id and command. They were in the same attempt, of the same size and with the same master, at
    different places. They ran at the same time, by their own clocks. If those clocks are too far apart, the agents
    count as two jobs.
    """
    if (node.run_id, node.command) != (other.run_id, other.command) or not _overlap(node, other):
        return False
    theirs = {attempt.key: attempt for attempt in other.attempts}
    return any(attempt.master and attempt.key in theirs for attempt in node.attempts) and not _conflict(node, other)


def _overlap(node: Node, other: Node) -> bool:
    first, second = sorted((node, other), key=lambda each: each.started_at)
    return second.started_at <= first.started_at + first.length_s


def _conflict(node: Node, other: Node) -> bool:
    """Whether two agents cannot be in one job: they had the same place in an attempt, or recorded it differently."""
    theirs = {attempt.key: attempt for attempt in other.attempts}
    return any(_differ(attempt, theirs[attempt.key]) for attempt in node.attempts if attempt.key in theirs)


def _differ(attempt: Attempt, other: Attempt) -> bool:
    is_same_place = attempt.node is None or attempt.node == other.node
    return is_same_place or _shared_facts(attempt) != _shared_facts(other)


def _shared_facts(attempt: Attempt) -> tuple[str, int, int]:
    return attempt.master, attempt.nodes, attempt.world_size


def agent_names(nodes: Sequence[Node]) -> list[str]:
    """A name for each agent: its host, and a number if the host had several agents."""
    by_host: dict[str, list[int]] = {}
    # One host has one clock, so its agents can be ordered by time.
    for place in sorted(range(len(nodes)), key=lambda place: nodes[place].started_at):
        by_host.setdefault(nodes[place].host, []).append(place)
    names = [node.host for node in nodes]
    for host, places in by_host.items():
        for number, place in enumerate(places, 1):
            names[place] = f"{host} (agent {number})" if len(places) > 1 else host
    return names


def _in_order(key: tuple[str, int]) -> tuple[bool, int]:
    return key[0] != "attempt", key[1]


def _place(node: Node, last: tuple[str, int] | None) -> tuple[bool, bool, int, str, float, str]:
    """The sort key of an agent: those present at the end come first, by rank."""
    was_left_behind = node.key != last and _is_elastic(node)
    rank = node.group_rank
    return was_left_behind, rank is None, rank or 0, node.host, node.started_at, node.directory


def _mark_those_left_behind(nodes: list[Node], last: tuple[str, int] | None) -> None:
    """Mark agents as lost that recorded no end and that the others went on without, on any machine."""
    for node in nodes:
        if node.outcome is Outcome.UNKNOWN and _is_elastic(node) and node.key != last:
            node.outcome = Outcome.LOST
            attempt = node.attempts[-1]
            if attempt.outcome is Outcome.UNKNOWN:
                attempt.outcome = Outcome.LOST
                for span in node.spans:
                    if span.attempt == attempt.number:
                        span.activity = Activity.LOST


def _extend_the_lost(rounds: list[Round], nodes: list[Node]) -> None:
    """Extend the time line of a lost agent until the others stopped because of it.

    Its last event may be hours earlier.
    """
    for each in rounds:
        ran_s = [_ran_s(attempt) for attempt in each.attempts.values() if attempt.outcome in _ENDED]
        for place, attempt in each.attempts.items():
            node = nodes[place]
            is_open = attempt.outcome is Outcome.LOST and attempt is node.attempts[-1]
            if not is_open or attempt.begin_s is None or not node.spans or node.spans[-1].attempt != attempt.number:
                continue
            end_s = max([node.length_s, *(attempt.begin_s + seconds for seconds in ran_s)])
            node.length_s = attempt.end_s = node.spans[-1].end_s = end_s


def _ran_s(attempt: Attempt) -> float:
    return 0.0 if attempt.begin_s is None or attempt.end_s is None else attempt.end_s - attempt.begin_s


def _is_elastic(node: Node) -> bool:
    return any(attempt.generation is not None for attempt in node.attempts)


def _rounds(nodes: list[Node]) -> list[Round]:
    by_key: dict[tuple[str, int], Round] = {}
    for place, node in enumerate(nodes):
        for attempt in node.attempts:
            by_key.setdefault(attempt.key, Round(key=attempt.key, attempts={})).attempts[place] = attempt
    rounds = [by_key[key] for key in sorted(by_key, key=_in_order)]
    for each in rounds:
        attempts = list(each.attempts.values())
        each.outcome = min((attempt.outcome for attempt in attempts), key=_ATTEMPTS_BY_WEIGHT.index)
        each.verdict = next((attempt.verdict for attempt in attempts if attempt.verdict is not None), None)
        if each.verdict is None:
            each.verdict = next((found for attempt in attempts if (found := verdict_of(attempt)) is not None), None)
        if each.verdict is not None and each.outcome is not Outcome.RUNNING:
            each.outcome = Outcome.FAILED
        each.reason = next((attempt.reason for attempt in attempts if attempt.reason), "")
    return rounds


def _count_as_lost(rounds: list[Round], nodes: list[Node]) -> None:
    """Count the time of nodes that were stopped because another one failed as lost, too."""
    worked = [{span.attempt: span for span in node.spans if span.attempt} for node in nodes]
    failed = [each for each in rounds if each.outcome is Outcome.FAILED and each.key[0] == "generation"]
    for place, attempt in (item for each in failed for item in each.attempts.items()):
        span = worked[place].get(attempt.number)
        if attempt.outcome is Outcome.STOPPED and span is not None:
            span.activity = Activity.LOST


def _notes(nodes: list[Node]) -> list[str]:
    notes: list[str] = []
    skipped = sum(node.skipped_lines for node in nodes)
    if skipped:
        notes.append(f"{skipped} line{'s' * (skipped > 1)} of the event log could not be read and were left out.")
    if any(node.is_cut for node in nodes):
        notes.append(
            f"An event log is longer than {LOG_MAX_BYTES:,} bytes or {LOG_MAX_LINES:,} lines; the rest was not read."
        )
    notes += _notes_on_ends(nodes)
    if len(nodes) > 1 and not nodes[0].job:
        notes.append(
            "These agents share no job id. They are shown together because they had the same run id, command, master "
            "and size, and ran at the same time."
        )
    if any(not node.spans for node in nodes):
        notes.append("These events do not say when workers ran, so the time cannot be split up.")
    return notes


def _notes_on_ends(nodes: list[Node]) -> list[str]:
    """Notes about agents that have recorded no end. In a job of several agents, each is named."""
    without_end = [
        (node, name)
        for node, name in zip(nodes, agent_names(nodes), strict=True)
        if node.outcome in (Outcome.LOST, Outcome.UNKNOWN)
    ]
    notes: list[str] = []
    for node, host in without_end[:_LOST_NAMED_MAX]:
        name = host if len(nodes) > 1 else "The agent"
        if node.outcome is Outcome.UNKNOWN:
            notes.append(
                f"{name} has recorded no end. Only on its machine can you see whether it still runs. Its times end "
                "with its last event."
            )
        elif node.key != nodes[0].key and _is_elastic(node):
            number = node.attempts[-1].generation
            notes.append(
                f"{name} was lost in generation {number}: the agent or its machine was killed, or cut off. "
                "The other nodes continued without it."
            )
        else:
            notes.append(f"{name} was lost: it or its machine was killed. Its times end with its last event.")
    more = len(without_end) - _LOST_NAMED_MAX
    return [*notes, f"{more} more agents have recorded no end."] if more > 0 else notes
