"""From the parts that nodes had in a run to the run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.report.records import Activity, Outcome, Round, Run
from holdfast.report.timeline import verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.report.records import Attempt, Node

_BY_WEIGHT = (
    *(Outcome.RUNNING, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.INTERRUPTED),
    *(Outcome.CLOSED, Outcome.LOST, Outcome.UNKNOWN),
)
"""Which node's outcome is the run's: where one has succeeded so has the job, whatever became of those that left."""

_ATTEMPTS_BY_WEIGHT = (
    *(Outcome.FAILED, Outcome.RUNNING, Outcome.STOPPED, Outcome.SUCCEEDED),
    *(Outcome.LOST, Outcome.UNKNOWN),
)


def run_of(nodes: Iterable[Node], notes: Iterable[str] = ()) -> Run:
    """The run that these nodes, at least one, were in."""
    by_rank = sorted(nodes, key=lambda node: (node.group_rank is None, node.group_rank or 0, node.host, node.directory))
    rounds = _rounds(by_rank)
    _count_as_lost(rounds, by_rank)
    weight: tuple[Outcome, ...] = _BY_WEIGHT
    if all(node.outcome in (Outcome.SUCCEEDED, Outcome.FAILED) and not _is_elastic(node) for node in by_rank):
        weight = (Outcome.FAILED, Outcome.SUCCEEDED)
    outcome = min((node.outcome for node in by_rank), key=weight.index)
    reason = next((node.reason for node in by_rank if node.outcome is outcome and node.reason), "")
    failed = [each for each in rounds if each.verdict is not None]
    final = [each for each in failed if each.verdict is not None and each.verdict.decision == "stop"]
    return Run(
        run_id=by_rank[0].run_id,
        outcome=outcome,
        reason=reason,
        verdict=(final or failed)[-1].verdict if failed else None,
        nodes=by_rank,
        rounds=rounds,
        notes=[*notes, *_notes(by_rank)],
    )


def is_of_same_run(node: Node, other: Node) -> bool:
    """Whether two directories can be parts of one run, told without comparing clocks.

    They cannot if both had the same place in the same attempt, or if that attempt was of another size for each:
    then one run id was used twice.
    """
    if node.run_id != other.run_id:
        return False
    theirs = {attempt.key: attempt for attempt in other.attempts}
    return not any(_conflict(attempt, theirs.get(attempt.key)) for attempt in node.attempts)


def _conflict(attempt: Attempt, other: Attempt | None) -> bool:
    if other is None:
        return False
    is_same_place = attempt.node is None or attempt.node == other.node
    return is_same_place or (attempt.nodes, attempt.world_size) != (other.nodes, other.world_size)


def _is_elastic(node: Node) -> bool:
    return any(attempt.generation is not None for attempt in node.attempts)


def _rounds(nodes: list[Node]) -> list[Round]:
    by_key: dict[tuple[str, int], Round] = {}
    for place, node in enumerate(nodes):
        for attempt in node.attempts:
            by_key.setdefault(attempt.key, Round(key=attempt.key, attempts={})).attempts[place] = attempt
    rounds = [by_key[key] for key in sorted(by_key, key=lambda key: (key[0] != "attempt", key[1]))]
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
    """A node that was stopped because another one failed has lost its time, too."""
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
        notes.append(f"{skipped} line{'s' * (skipped > 1)} of the event log could not be understood and were left out.")
    if any(node.outcome is Outcome.LOST for node in nodes):
        notes.append(
            "An agent ended without a word: it was killed, or its machine was. Times are known up to its last event."
        )
    if any(node.outcome is Outcome.UNKNOWN for node in nodes):
        notes.append(
            "No end is recorded. Only its machine can tell whether it goes on; times are known up to the last event."
        )
    if any(not node.spans for node in nodes):
        notes.append("These events do not say when workers ran, so the time cannot be told apart.")
    return notes
