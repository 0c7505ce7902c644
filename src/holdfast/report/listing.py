"""A list of jobs, one per line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.errors.text import visible_line
from holdfast.report.records import Outcome
from holdfast.report.units import OUTCOME_SIGNS, SHOWN_ID_CHARS, duration, moment, one_line, outcome

if TYPE_CHECKING:
    from typing import Any

    from holdfast.report.records import Run

ID_MAX_CHARS = 36

OUTCOME_MAX_CHARS = 70

_RESET, _RED, _GREEN = "\x1b[0m", "\x1b[31m", "\x1b[32m"
_COLOURS = {Outcome.SUCCEEDED: _GREEN, Outcome.FAILED: _RED, Outcome.LOST: _RED}
_TITLES = ["run id", "job id", "started", "length", "nodes", "workers", "outcome", "directory"]
_OUTCOME = _TITLES.index("outcome")


def listing_text(runs: list[Run], *, colours: bool = False) -> str:
    """A table of jobs, in the given order."""
    rows = [_row(run) for run in runs]
    widths = [max(len(row[column]) for row in [_TITLES, *rows]) for column in range(len(_TITLES))]
    lines = [_line(_TITLES, widths)]
    for run, row in zip(runs, rows, strict=True):
        line = _line(row, widths)
        colour = _COLOURS.get(run.outcome, "") if colours else ""
        lines.append(line.replace(row[_OUTCOME], f"{colour}{row[_OUTCOME]}{_RESET}", 1) if colour else line)
    return "\n".join(lines)


def listing_json(runs: list[Run]) -> str:
    """The jobs as a list of objects."""
    return json.dumps([_object(run) for run in runs], indent=2)


def _line(row: list[str], widths: list[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(run: Run) -> list[str]:
    least = "> " if run.outcome in (Outcome.LOST, Outcome.UNKNOWN) else ""
    first, more = run.first(), len(run.nodes) - 1
    return [
        one_line(run.run_id, ID_MAX_CHARS) or "-",
        one_line(run.job)[:SHOWN_ID_CHARS] or "-",
        moment(first.started_at).rpartition(" ")[0] or "unknown",
        least + duration(run.length_s()),
        str(run.rounds[-1].size() if run.rounds else "-"),
        str(run.rounds[-1].world_size() if run.rounds else "-"),
        f"{OUTCOME_SIGNS[run.outcome]} {one_line(outcome(run), OUTCOME_MAX_CHARS)}",
        visible_line(first.directory) + (f" and {more} more" if more else ""),
    ]


def _object(run: Run) -> dict[str, Any]:
    cause = run.verdict.cause if run.verdict else None
    return {
        "run_id": run.run_id,
        "job": run.job,
        "started_at": run.first().started_at,
        "length_s": run.length_s(),
        "outcome": run.outcome,
        "reason": run.reason,
        "cause": None
        if cause is None
        else {
            "rank": cause.rank,
            "host": cause.host,
            "kind": cause.kind,
            "exception": cause.exception,
            "where": cause.where,
        },
        "nodes": run.rounds[-1].size() if run.rounds else 0,
        "workers": run.rounds[-1].world_size() if run.rounds else 0,
        "agents": len(run.nodes),
        "restarts": max(node.restarts for node in run.nodes),
        "directory": run.first().directory,
        "directories": [node.directory for node in run.nodes],
    }
