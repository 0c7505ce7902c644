"""Durations, times, shares and lines of text, as people read them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.errors.text import headline, visible
from holdfast.report.records import Outcome

if TYPE_CHECKING:
    from holdfast.report.records import Failure, Round, Run, Verdict

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S

HEADLINE_MAX_CHARS = 160
COMMAND_MAX_CHARS = 400

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
"""So that nobody depends on a colour."""


def duration(seconds: float) -> str:
    """Two units at most: 850 ms, 3.2 s, 4 min 05 s, 2 h 03 min, 5 d 07 h."""
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
    """A time of day with its zone, as the reader's machine has it; "unknown" for one that nobody recorded."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(timestamp)) if timestamp > 0 else "unknown"
    except (OverflowError, ValueError, OSError):
        return "unknown"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def counted(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def one_line(text: str, limit_chars: int = HEADLINE_MAX_CHARS) -> str:
    """The line of a text that says most, safe to print."""
    return visible(headline(text, limit_chars)).replace("\t", " ")


def last_lines(text: str, max_lines: int, max_chars: int) -> list[str]:
    """The end of a text, safe to print, with a note of what is missing."""
    shown = text.rstrip()[-max_chars:]
    lines = [visible(line) for line in shown.splitlines()][-max_lines:]
    return (
        [f"... ({len(text):,} characters in all)", *lines] if len("\n".join(lines)) < len(text.rstrip()) - 1 else lines
    )


def who(failure: Failure) -> str:
    """Which worker it was: "rank 3 on node1"."""
    rank = f"rank {failure.rank}" if failure.rank >= 0 else "a worker"
    return f"{rank} on {visible(failure.host)}" if failure.host else rank


def what(failure: Failure) -> str:
    """How it failed: "exception ValueError", "killed, exit code -9"."""
    kind = visible(failure.kind or "failure")
    if failure.exception:
        return f"{kind} {visible(failure.exception)}"
    return kind if failure.exit_code is None else f"{kind}, exit code {failure.exit_code}"


def why(each: Round) -> str:
    """Why an attempt of the job ended, in a line; "" if there is nothing to say."""
    if each.verdict is None:
        return one_line(each.reason)
    cause = each.verdict.cause
    return f"{who(cause)}: {what(cause)}" + (f" at {one_line(cause.where)}" if cause.where else "")


def decided(verdict: Verdict) -> str:
    """What followed from a verdict, and why, in a line."""
    return ": ".join(one_line(word) for word in (verdict.decision, verdict.reason) if word)


def outcome(run: Run) -> str:
    """What became of a run, in a line: of a failed one, the cause."""
    reason = run.reason
    if run.verdict is not None and run.outcome is Outcome.FAILED:
        cause = run.verdict.cause
        reason = f"{who(cause)}: {what(cause)}" + (f" ({reason})" if reason else "")
    return f"{run.outcome}: {one_line(reason)}" if reason else str(run.outcome)


def command(words: list[str]) -> str:
    text = " ".join(visible(word).replace("\n", "\\n") for word in words)
    return text if len(text) <= COMMAND_MAX_CHARS else f"{text[:COMMAND_MAX_CHARS]} ..."
