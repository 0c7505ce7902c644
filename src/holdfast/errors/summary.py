"""The summary of a job's failures: the others in a line each, then the root cause in full."""

from __future__ import annotations

from holdfast.errors.advice import advice
from holdfast.errors.failure import in_order
from holdfast.errors.kind import FailureKind, is_of_program
from holdfast.errors.text import encodable, headline, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.errors.failure import ProcessFailure

BORDER_MAX_CHARS = 60
HEADLINE_MAX_CHARS = 120
REASON_MAX_CHARS = 500
OTHERS_MAX_LINES = 64
"""How many failures besides the root cause are listed. The rest are only counted."""


def summarize(
    name: str,
    failures: Mapping[int, ProcessFailure],
    border: str = "=",
    rule: str = "-",
    victims_elsewhere: int = 0,
    reason: str = "",
) -> str:
    """Summarize `failures`, of which there is at least one.

    The summary begins with a line break, so that the text that introduces it has its own line. It ends with the root
    cause, because a terminal shows the end. Failures are numbered from 0 in order of time, victims last.
    """
    (first_rank, first), *others = in_order(failures)
    title = f"{name} FAILED"
    listed = ["Failures:", *_others(others)]
    also = sum(_is_alike(first, failure) for _, failure in others)
    victims = len(others) - also
    if is_of_program(first.exception, first.where):
        also += victims_elsewhere
    else:
        victims += victims_elsewhere
    cause = ["Root Cause (first observed failure):", *_root_cause(first_rank, first, victims, also, reason)]
    width = min(max(len(line) for line in [title, *listed, *cause]), BORDER_MAX_CHARS)
    block = ["", border * width, title, rule * width, *listed, rule * width, *cause, border * width]
    # Workers' text is shown on every machine's terminal and must not control it.
    return visible(encodable("\n".join(block)))


def _others(others: list[tuple[int, ProcessFailure]]) -> list[str]:
    if not others:
        return ["  <NO_OTHER_FAILURES>"]
    lines = [
        f"  [{place}] rank {_rank(rank, failure)}, host {failure.host}, exitcode {_exit(failure)}: " + gist(failure)
        for place, (rank, failure) in enumerate(others[:OTHERS_MAX_LINES], start=1)
    ]
    unlisted = len(others) - len(lines)
    return [*lines, f"  and {unlisted} more"] if unlisted else lines


def _is_alike(cause: ProcessFailure, other: ProcessFailure) -> bool:
    """Whether a worker failed in the way of the cause, and so on its own."""
    if cause.kind is FailureKind.COMMUNICATION or not (cause.exception or cause.where):
        return False
    return (other.kind, other.exception, other.where) == (cause.kind, cause.exception, cause.where)


def _root_cause(rank: int, failure: ProcessFailure, victims: int, also: int, reason: str) -> list[str]:
    first_line, *rest = failure.message.rstrip().split("\n")
    # A traceback starts on its own line, so that its indentation is readable.
    text = ["", first_line, *rest] if rest else [first_line]
    advised = advice(failure.kind, failure.exception, failure.where)
    if failure.kind is FailureKind.EXCEPTION and advice(failure.kind, failure.exception) == advice(failure.kind):
        advised = ""  # the traceback right below says it better
    known = (
        ("kind", str(failure.kind)),
        ("where", failure.where),
        ("log_file", failure.log_file),
        ("also", f"{also} more {'worker' if also == 1 else 'workers'} failed" if also else ""),
        ("victims", f"{victims} more {'worker' if victims == 1 else 'workers'} failed with it" if victims else ""),
        ("others", "\n              ".join(failure.survivors)),
        *_why_no_restart(reason),
        ("advice", advised),
    )
    return [
        "[0]:",
        f"  time      : {failure.timestamp_isoformat()}",
        f"  host      : {failure.host}",
        f"  rank      : {_rank(rank, failure)}",
        f"  exitcode  : {_exit(failure)}",
        f"  error_file: {failure.error_file}",
        *(f"  {name:<10}: {value}" for name, value in known if value),
        f"  traceback : {text[0]}".rstrip(),
        *(f"    {line}".rstrip() for line in text[1:]),
    ]


def _why_no_restart(reason: str) -> list[tuple[str, str]]:
    """The reason as a labelled line. "restarts: 3 of 3" already has its label."""
    name, _, count = reason.partition(": ")
    if name == "restarts":
        return [(name, count)]
    return [("restart", headline(reason, REASON_MAX_CHARS))] if reason else []


def _rank(rank: int, failure: ProcessFailure) -> str:
    return f"{rank} (local_rank: {failure.local_rank})"


def _exit(failure: ProcessFailure) -> str:
    signal = f" ({failure.signal_name()})" if failure.exitcode < 0 else ""
    return f"{failure.exitcode} (pid: {failure.pid}){signal}"


def gist(failure: ProcessFailure) -> str:
    """The reason of a failure in one line."""
    message = failure.error_file_data.get("message")
    stated = message.get("message") if isinstance(message, dict) else None
    text = stated if isinstance(stated, str) and stated.strip() else failure.message
    return headline(text, HEADLINE_MAX_CHARS)
