"""Runs, one a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.errors.text import visible
from holdfast.report.joining import run_of
from holdfast.report.records import Outcome
from holdfast.report.units import OUTCOME_SIGNS, duration, moment, one_line, outcome

if TYPE_CHECKING:
    from typing import Any

    from holdfast.report.records import Node

ID_MAX_CHARS = 36
OUTCOME_MAX_CHARS = 70

_RESET, _RED, _GREEN = "\x1b[0m", "\x1b[31m", "\x1b[32m"
_COLOURS = {Outcome.SUCCEEDED: _GREEN, Outcome.FAILED: _RED, Outcome.LOST: _RED}
_TITLES = ["id", "started", "length", "nodes", "workers", "outcome", "directory"]


def listing_text(nodes: list[Node], *, colours: bool = False) -> str:
    """A table of runs in the order given."""
    rows = [_row(node) for node in nodes]
    widths = [max(len(row[column]) for row in [_TITLES, *rows]) for column in range(len(_TITLES))]
    lines = [_line(_TITLES, widths)]
    for node, row in zip(nodes, rows, strict=True):
        line = _line(row, widths)
        colour = _COLOURS.get(node.outcome, "") if colours else ""
        lines.append(line.replace(row[5], f"{colour}{row[5]}{_RESET}", 1) if colour else line)
    return "\n".join(lines)


def listing_json(nodes: list[Node]) -> str:
    """The same as a list of objects."""
    return json.dumps([_object(node) for node in nodes], indent=2)


def _line(row: list[str], widths: list[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(node: Node) -> list[str]:
    last = node.attempts[-1] if node.attempts else None
    sign = OUTCOME_SIGNS[node.outcome]
    least = "> " if node.outcome in (Outcome.LOST, Outcome.UNKNOWN) else ""
    return [
        one_line(node.run_id, ID_MAX_CHARS) or "-",
        moment(node.started_at).rpartition(" ")[0] or "unknown",
        least + duration(node.length_s),
        str(last.nodes if last else "-"),
        str(last.world_size if last else "-"),
        f"{sign} {one_line(outcome(run_of([node])), OUTCOME_MAX_CHARS)}",
        visible(node.directory),
    ]


def _object(node: Node) -> dict[str, Any]:
    last = node.attempts[-1] if node.attempts else None
    run = run_of([node])
    cause = run.verdict.cause if run.verdict else None
    return {
        "run_id": node.run_id,
        "started_at": node.started_at,
        "length_s": node.length_s,
        "outcome": node.outcome,
        "reason": node.reason,
        "cause": None
        if cause is None
        else {
            "rank": cause.rank,
            "host": cause.host,
            "kind": cause.kind,
            "exception": cause.exception,
            "where": cause.where,
        },
        "nodes": last.nodes if last else 0,
        "workers": last.world_size if last else 0,
        "restarts": node.restarts,
        "directory": node.directory,
    }
