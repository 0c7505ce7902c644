"""Durations, times, shares and lines of text in readable form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.errors.kind import is_of_program
from holdfast.errors.text import headline, visible, visible_line
from holdfast.report.joining import agent_names
from holdfast.report.records import Outcome

if TYPE_CHECKING:
    from holdfast.errors.failure import Failure
    from holdfast.report.records import Node, Round, Run, Verdict, WarningNote

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S

HEADLINE_MAX_CHARS = 160
COMMAND_MAX_CHARS = 400

HOST_MAX_CHARS = 40

SHOWN_ID_CHARS = 8
"""How many characters of a job's id are shown: enough to name it."""

OUTCOME_SIGNS = {
    Outcome.SUCCEEDED: "✓",
    Outcome.FAILED: "✕",
    Outcome.STOPPED: "■",
    Outcome.INTERRUPTED: "■",
    Outcome.CLOSED: "■",
    Outcome.RUNNING: "▶",
    Outcome.LOST: "?",
    Outcome.UNKNOWN: "?",
}
"""Signs for outcomes, so that nobody depends on colour."""


def duration(seconds: float) -> str:
    """A duration in at most two units: 850 ms, 3.2 s, 4 min 05 s, 2 h 03 min, 5 d 07 h."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < MINUTE_S - 0.05:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, part_s, part in ((DAY_S, "d", HOUR_S, "h"), (HOUR_S, "h", MINUTE_S, "min")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit} {whole % unit_s // part_s:02} {part}"
    return f"{whole // MINUTE_S} min {whole % MINUTE_S:02} s"


def moment(timestamp: float) -> str:
    """The local date and time with its zone; "unknown" if none was recorded."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(timestamp)) if timestamp > 0 else "unknown"
    except (OverflowError, ValueError, OSError):
        return "unknown"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def counted(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def one_line(text: str, limit_chars: int = HEADLINE_MAX_CHARS) -> str:
    """The most telling line of a text, safe to print."""
    return visible(headline(text, limit_chars)).replace("\t", " ")


def last_lines(text: str, max_lines: int, max_chars: int) -> list[str]:
    """The end of a text, safe to print, with a note if something is missing."""
    shown = text.rstrip()[-max_chars:]
    lines = [visible(line) for line in shown.splitlines()][-max_lines:]
    return (
        [f"... ({len(text):,} characters in all)", *lines] if len("\n".join(lines)) < len(text.rstrip()) - 1 else lines
    )


def who(failure: Failure) -> str:
    """The worker that failed: "rank 3 on node1"."""
    rank = f"rank {failure.rank}" if failure.rank >= 0 else "a worker"
    return f"{rank} on {visible_line(failure.host)}" if failure.host else rank


def what(failure: Failure) -> str:
    """How the worker failed: "exception ValueError", "killed, exit code -9"."""
    kind = visible_line(failure.kind or "failure")
    if failure.exception:
        return f"{kind} {visible_line(failure.exception)}"
    return kind if failure.exit_code is None else f"{kind}, exit code {failure.exit_code}"


def why(each: Round) -> str:
    """Why an attempt of the job ended, in one line; "" if unknown."""
    if each.verdict is None:
        return one_line(each.reason)
    cause = each.verdict.cause
    return f"{who(cause)}: {what(cause)}" + (f" at {one_line(cause.where)}" if cause.where else "")


def decided(verdict: Verdict) -> str:
    """The decision of a verdict, and its reason, in one line."""
    return ": ".join(one_line(word) for word in (verdict.decision, verdict.reason) if word)


def outcome(run: Run) -> str:
    """How a run ended, in one line; for a failed run, with the cause."""
    reason = run.reason
    if run.verdict is not None and run.outcome is Outcome.FAILED:
        cause = run.verdict.cause
        reason = f"{who(cause)}: {what(cause)}" + (f" ({reason})" if reason else "")
    return f"{run.outcome}: {one_line(reason)}" if reason else str(run.outcome)


def command(words: list[str]) -> str:
    text = " ".join(map(visible_line, words))
    return text if len(text) <= COMMAND_MAX_CHARS else f"{text[:COMMAND_MAX_CHARS]} ..."


def length(run: Run) -> str:
    """How long a job took; "at least" that long if no end was recorded."""
    took = duration(run.length_s())
    if run.outcome in (Outcome.LOST, Outcome.UNKNOWN):
        return f"at least {took}"
    return f"{took} so far" if run.outcome is Outcome.RUNNING else took


def nodes(run: Run) -> str:
    """The number of nodes and workers of a job: "3 (--nnodes 2:3), 6 workers"."""
    at_once = run.nodes_at_once()
    if not run.rounds:
        return str(at_once)
    last = run.rounds[-1]
    told = max(len(each.attempts) for each in run.rounds if each.size() == at_once)
    first = run.first()
    is_plain = first.min_nodes == first.max_nodes == at_once or not first.max_nodes
    wanted = str(first.max_nodes) if first.min_nodes == first.max_nodes else f"{first.min_nodes}:{first.max_nodes}"
    workers = f", {counted(last.world_size(), 'worker')}" if last.world_size() else ""
    return (
        str(at_once)
        + (f" (told by {told} of them)" if told < at_once else "")
        + ("" if is_plain else f" (--nnodes {wanted})")
        + (f", {last.size()} at the end" if last.size() != at_once else "")
        + workers
    )


def others_failed(verdict: Verdict) -> dict[str, str]:
    """How many others failed, by the fact's name: as victims of the cause, or each on its own."""
    if not verdict.victims:
        return {}
    others = counted(verdict.victims, "other worker")
    if is_of_program(verdict.cause.exception, verdict.cause.where):
        return {"also": f"{others} failed"}
    return {"victims": f"{others} failed with it"}


def agents(run: Run) -> str:
    """The number of agents, if there were more than nodes: some came back, or replaced others."""
    if len(run.nodes) <= run.nodes_at_once():
        return ""
    hosts = [node.host for node in run.nodes]
    several = [f"{one_line(host, HOST_MAX_CHARS)} had {hosts.count(host)}" for host in dict.fromkeys(hosts)]
    told = [each for each in several if not each.endswith(" had 1")]
    shown = f": {', '.join(told)}" if len(told) == 1 else ""
    return f"{len(hosts)}, on {counted(len(several), 'machine')}{shown}"


def restarts(run: Run) -> str:
    """The number of restarts of a job, and its budget: "1 of 3"."""
    count = max(node.restarts for node in run.nodes)
    first = run.nodes[0]
    if not first.version:
        return str(count)
    if count > first.max_restarts:
        return f"{count} (of {first.max_restarts}; time without failures resets the count)"
    return f"{count} of {first.max_restarts}" if first.max_restarts else f"{count} (--max-restarts 0)"


def names(run: Run) -> list[str]:
    """A name for each agent, with its rank if it was present at the end: "node 2 machine3 (agent 2)"."""
    hosts = [one_line(name, HOST_MAX_CHARS) for name in agent_names(run.nodes)]
    return [f"{_place(run, node)}{host}".rstrip() for node, host in zip(run.nodes, hosts, strict=True)]


def _place(run: Run, node: Node) -> str:
    if run.was_left_behind(node):
        return ""  # another agent took its rank
    return "node " if node.group_rank is None else f"node {node.group_rank} "


def warning(node: Node, each: WarningNote) -> str:
    """The subject and the text of a warning."""
    host = one_line(node.host, HOST_MAX_CHARS)
    about = f"rank {each.rank} on {host}" if each.rank is not None else host
    return f"{about}, attempt {each.attempt}: {one_line(each.text, HEADLINE_MAX_CHARS * 2)}"
