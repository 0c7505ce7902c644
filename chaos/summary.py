"""A storm in numbers: faults by kind and what came of each, for people and for programs. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from chaos.attribution import ENDED, RUNS, STUCK
from chaos.calm import undisturbed_share
from chaos.generations import count_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.attribution import Stage
    from chaos.checker import Transcript

COLUMNS = ("faults", "nothing", "generation", "job", "stuck", "slow", "restarts", "losses", "undisturbed", "seconds")
"""Of a kind: its faults; how many of their steps ended nothing, a generation, the job, or got stuck; in how many the
machine was too slow for leases; the restarts that were counted, the generations that ended because a node was lost, the
share of the time in which the training went on, and that time.
"""


def summary(transcript: Transcript, found: Sequence[str]) -> dict[str, Any]:
    """All of it. A step with two faults counts for both of their kinds."""
    stages: dict[str, list[Stage]] = defaultdict(list)
    for stage in transcript.stages:
        for kind in {fault["kind"] for fault in stage.faults}:
            stages[kind].append(stage)
    faults = Counter(fault["kind"] for fault in transcript.faults)
    at_s = [entry["at_s"] for entry in transcript.all("settled")]
    since_s, until_s = (at_s[0], at_s[-1]) if at_s else (0.0, 0.0)
    return {
        "seed": transcript.storm.get("seed"),
        "backend": transcript.storm.get("backend"),
        "faults": len(transcript.faults),
        "kinds": {kind: {"faults": faults[kind], **_row(transcript, stages[kind])} for kind in sorted(faults)},
        "jobs": 1 + len(transcript.all("job")),
        "generations": len(transcript.generations),
        "restarts": sum(_restarts(transcript, stage) for stage in transcript.stages),
        "losses": sum(_losses(transcript, stage) for stage in transcript.stages),
        "undisturbed": round(undisturbed_share(transcript.entries, since_s, until_s), 3),
        "seconds": round(until_s - since_s, 1),
        "violations": list(found),
    }


def _row(transcript: Transcript, stages: list[Stage]) -> dict[str, Any]:
    spans = [(stage.since_s, stage.until_s) for stage in stages]
    seconds = sum(until_s - since_s for since_s, until_s in spans)
    calm = sum(undisturbed_share(transcript.entries, *span) * (span[1] - span[0]) for span in spans)
    ended = [count_between(stage.before, stage.after) if stage.outcome == RUNS else 0 for stage in stages]
    return {
        "nothing": sum(stage.outcome == RUNS and not count for stage, count in zip(stages, ended, strict=True)),
        "generation": sum(map(bool, ended)),
        "job": sum(stage.outcome == ENDED for stage in stages),
        "stuck": sum(stage.outcome == STUCK for stage in stages),
        "slow": sum(stage.is_slow for stage in stages),
        "restarts": sum(_restarts(transcript, stage) for stage in stages),
        "losses": sum(_losses(transcript, stage) for stage in stages),
        "undisturbed": round(calm / seconds, 3) if seconds else 1.0,
        "seconds": round(seconds, 1),
    }


def _restarts(transcript: Transcript, stage: Stage) -> int:
    """By how much the count rose."""
    counts = [max(transcript.restarts.get(key, {0})) for key in (stage.before, stage.after)]
    is_one_count = stage.outcome == RUNS and stage.before[:2] == stage.after[:2]
    return counts[1] - counts[0] if is_one_count else 0


def _losses(transcript: Transcript, stage: Stage) -> int:
    """How many generations ended because a node was lost, as some node told it."""
    return sum(
        any(told.ended is not None and told.ended[1].startswith("lost ") for told in transcript.told.get(key, ()))
        for key in transcript.ended_in(stage)
    )


def table(numbers: dict[str, Any]) -> str:
    """The summary as lines: a row for each kind, then all of the storm, then what is wrong."""
    width = max(len("all"), *map(len, numbers["kinds"]))
    rows = [["ended by it:".ljust(width), *COLUMNS]]
    rows += [[kind.ljust(width), *(_cell(row, name) for name in COLUMNS)] for kind, row in numbers["kinds"].items()]
    lines = ["  ".join(cell.rjust(len(name)) for cell, name in zip(row, ["", *COLUMNS], strict=True)) for row in rows]
    jobs = f"{numbers['jobs']} job{'s' * (numbers['jobs'] > 1)}"
    lines.append(
        f"{numbers['faults']} faults in {numbers['seconds']:.0f} s: {jobs}, {numbers['generations']} generations, "
        f"{numbers['restarts']} restarts, {numbers['losses']} losses, {numbers['undisturbed']:.0%} undisturbed"
    )
    laws = Counter(problem.partition(": ")[0] for problem in numbers["violations"])
    lines += [f"  {count} times: {law}" for law, count in laws.most_common()]
    return "\n".join(lines)


def _cell(row: dict[str, Any], name: str) -> str:
    if name == "undisturbed":
        return f"{row[name]:.0%}"
    return f"{row[name]:.0f}" if name == "seconds" else str(row[name])
