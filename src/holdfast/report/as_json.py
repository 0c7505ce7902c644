"""A run as JSON, for other programs."""

from __future__ import annotations

import json

import msgspec

from holdfast.errors.advice import advice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.report.records import Activity, Attempt, Node, Run, Verdict

FORMAT = 1
"""The version of the format. Increased when a field changes its meaning or is removed, not for new fields."""


def report_json(run: Run) -> str:
    """Everything known about a run. Only ASCII, so that nothing in it can control a terminal."""
    verdict = None
    if run.verdict is not None:
        cause = run.verdict.cause
        verdict = {**_verdict(run.verdict), "advice": advice(cause.kind, cause.exception, cause.where)}
    report = {
        "format": FORMAT,
        "run_id": run.run_id,
        "job": run.job,
        "outcome": run.outcome,
        "reason": run.reason,
        "verdict": verdict,
        "min_nodes": run.first().min_nodes,
        "max_nodes": run.first().max_nodes,
        "nodes_at_once": run.nodes_at_once(),
        "restarts": max(node.restarts for node in run.nodes),
        "max_restarts": run.nodes[0].max_restarts,
        "length_s": run.length_s(),
        "time_s": _times(run.time_s()),
        "warnings": [{"host": node.host, **_plain(warning)} for node, warning in run.warnings()],
        "nodes": [_node(node) for node in run.nodes],
        "notes": run.notes,
    }
    return json.dumps(report, indent=2)


def _node(node: Node) -> dict[str, Any]:
    return {**_plain(node), "attempts": [_attempt(each) for each in node.attempts], "time_s": _times(node.time_s())}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    failures = [failure.facts() for failure in attempt.failures]
    verdict = None if attempt.verdict is None else _verdict(attempt.verdict)
    return {**_plain(attempt), "failures": failures, "verdict": verdict}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {**_plain(verdict), "cause": verdict.cause.facts()}


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def _times(spent: dict[Activity, float]) -> dict[str, float]:
    return {activity.name.lower(): round(seconds, 6) for activity, seconds in spent.items()}
