"""A run as one self-contained HTML page: no network, no scripts, no other files."""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING

from holdfast.errors.advice import advice
from holdfast.errors.text import clipped, visible
from holdfast.report.joining import agent_names
from holdfast.report.picture import (
    CLASSES,
    DEFINITIONS,
    NODES_DRAWN_MAX,
    SPANS_DRAWN_MAX,
    mark_swatch,
    split_bar,
    swatch,
    timeline,
)
from holdfast.report.records import Activity, Outcome
from holdfast.report.units import (
    OUTCOME_SIGNS,
    agents,
    command,
    decided,
    duration,
    length,
    moment,
    nodes,
    one_line,
    others_failed,
    outcome,
    restarts,
    share,
    warning,
    what,
    who,
    why,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.errors.failure import Failure
    from holdfast.report.records import Attempt, Node, Round, Run

ATTEMPTS_HEAD = 20
ATTEMPTS_TAIL = 80
"""How many of the first and of the last attempts have details. Those in between are only counted."""

FAILURES_MAX = 16
"""The number of listed failures per attempt."""

WARNINGS_MAX = 100
"""The number of listed warnings."""

MESSAGE_MAX_CHARS = 8000

MEANINGS = {
    Activity.TRAINING: "workers ran, in attempts that succeeded, still run, or were stopped in an orderly way",
    Activity.LOST: "workers ran in an attempt that failed; work that was not saved is repeated",
    Activity.RESTARTING: "from the end of an attempt until the workers of the next one run, apart from waiting",
    Activity.WAITING: "in the rendezvous, for other nodes, before workers start",
    Activity.STARTING: "the agent's own start, the first start of the workers, and the end",
}

CSS_CLASSES = {
    Outcome.SUCCEEDED: "good",
    Outcome.FAILED: "bad",
    Outcome.STOPPED: "stopped",
    Outcome.INTERRUPTED: "stopped",
    Outcome.CLOSED: "stopped",
    Outcome.RUNNING: "running",
    Outcome.LOST: "gone",
    Outcome.UNKNOWN: "gone",
}

# Whatever text a log contains, a browser neither runs nor fetches anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_LEGEND = (
    ("good", "✓ attempt succeeded"),
    ("bad", "✕ attempt failed"),
    ("stopped", "■ attempt stopped: machines came or went, or on request"),
    ("running", "▶ attempt running"),
    ("gone", "? agent lost, or no end recorded"),
    ("restarting", "restarting"),
    ("waiting", "waiting for nodes"),
    ("starting", "starting and ending"),
)


def report_page(run: Run) -> str:
    """The whole page. All text from a log is escaped."""
    title = _text(f"Run {one_line(run.run_id)}")
    parts = [
        _header(run, title),
        _verdict(run),
        _warnings(run),
        _timeline(run),
        _time(run),
        _nodes(run),
        _attempts(run),
        _meanings(run),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}: {run.outcome}</title>\n<style>{_style()}</style>\n</head>\n"
        f"<body>\n{DEFINITIONS}\n<main>\n{_joined(parts)}\n</main>\n</body>\n</html>\n"
    )


def _style() -> str:
    with open(os.path.join(os.path.dirname(__file__), "page.css"), encoding="utf-8") as file:
        return file.read()


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _text(text: str) -> str:
    return escape(visible(text))


def _facts(facts: dict[str, str]) -> str:
    """A list of names and values. The values are HTML; empty ones are left out."""
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items() if value)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def _path(path: str) -> str:
    return f'<span class="path">{_text(path)}</span>' if path else ""


def _badge(value: Outcome) -> str:
    return f'<span class="badge {CSS_CLASSES[value]}">{OUTCOME_SIGNS[value]} {value}</span>'


def _tag(value: Outcome) -> str:
    return f'<span class="tag {CSS_CLASSES[value]}">{OUTCOME_SIGNS[value]} {value}</span>'


def _header(run: Run, title: str) -> str:
    first = run.first()
    facts = {
        "job id": _text(run.job),
        "command": f'<code class="command">{escape(command(first.command))}</code>' if first.command else "",
        "started": escape(moment(first.started_at)),
        "length": length(run),
        "nodes": nodes(run),
        "agents": escape(agents(run)),
        "attempts": f"{len(run.rounds):,}",
        "restarts": restarts(run),
        "directory": _path(first.directory),
        "written by": f"holdfast {_text(first.version)}" if first.version else "",
    }
    reason = outcome(run).partition(": ")[2]
    because = f' <span class="quiet">{escape(reason)}</span>' if reason else ""
    return f"<header>\n<h1>{title}</h1>\n<p>{_badge(run.outcome)}{because}</p>\n{_facts(facts)}\n</header>"


def _verdict(run: Run) -> str:
    if run.verdict is None:
        return ""
    verdict, cause = run.verdict, run.verdict.cause
    is_final = run.outcome is Outcome.FAILED
    stacks = [each for a in _attempts_of(run) for each in a.stacks]
    facts = {
        "where": _path(cause.where),
        "log file": _path(cause.log_file),
        **others_failed(verdict),
        "peak memory": f"{cause.max_rss_kib / 1024:,.0f} MiB" if cause.max_rss_kib else "",
        "had run for": duration(cause.ran_s) if cause.ran_s else "",
        "stacks": "<br>".join(_path(each.file) + _outliers(each.outliers) for each in stacks),
        "decision": escape(decided(verdict)),
    }
    to_do = advice(cause.kind, cause.exception, cause.where)
    return _joined(
        [
            f'<section class="card {"bad" if is_final else "past"}" id="verdict">',
            f"<h2>{'Why it failed' if is_final else 'The last failure'}</h2>",
            f'<div class="what">{escape(who(cause))}: {escape(what(cause))}</div>',
            _facts(facts),
            _message(cause),
            f'<div class="advice"><b>What to do:</b> {_text(to_do)}</div>' if to_do else "",
            "</section>",
        ]
    )


def _warnings(run: Run) -> str:
    told = run.warnings()
    if not told:
        return ""
    items = "".join(f"<li>{escape(warning(node, each))}</li>" for node, each in told[:WARNINGS_MAX])
    more = len(told) - WARNINGS_MAX
    note = f'<p class="quiet">and {more:,} more; holdfast report --json has all.</p>' if more > 0 else ""
    return f'<section class="card past" id="warnings">\n<h2>Warnings</h2>\n<ul>{items}</ul>{note}\n</section>'


def _outliers(ranks: list[int]) -> str:
    return f" ({'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:8]))} stood out)" if ranks else ""


def _attempts_of(run: Run) -> Iterable[Attempt]:
    for each in run.rounds:
        if each.verdict is run.verdict:
            yield from each.attempts.values()


def _message(failure: Failure) -> str:
    text = failure.message.rstrip()
    return f"<pre>{_text(clipped(text, MESSAGE_MAX_CHARS))}</pre>" if text else ""


def _timeline(run: Run) -> str:
    picture = timeline(run)
    if not picture:
        return ""
    used = [(css_class, text) for css_class, text in _LEGEND if f'class="{css_class}"' in picture]
    items = "".join(f"<li>{swatch(css_class)}{text}</li>" for css_class, text in used)
    for css_class, text in (("cause", "the worker that failed first"), ("victim", "failed because of it")):
        if f'class="{css_class}"' in picture:
            items += f"<li>{mark_swatch(css_class)}{text}</li>"
    hints = ["Numbers in the bars are attempts."]
    if len(run.nodes) > 1:
        hints = [
            "Each agent has its own clock; the clocks are aligned by the attempts that agents share.",
            "Numbers in the bars are attempts of the whole job.",
        ]
    if len(run.nodes) > NODES_DRAWN_MAX:
        hints.append(f"Only the first {NODES_DRAWN_MAX} of {len(run.nodes)} agents are drawn.")
    if any(len(node.spans) > SPANS_DRAWN_MAX for node in run.nodes):
        hints = ["Too much to draw in full: each column shows what took most of its time.", *hints[1:]]
    hint = " ".join(hints)
    legend = f'<ul class="legend">{items}</ul>\n<p class="quiet">{hint}</p>'
    return f"<section>\n<h2>Timeline</h2>\n{picture}\n{legend}\n</section>"


def _time(run: Run) -> str:
    spent = run.time_s()
    if not sum(spent.values()):
        return ""
    in_order = {activity: spent.get(activity, 0.0) for activity in MEANINGS}
    whole_s = sum(in_order.values())
    title = "Time of all agents together" if len(run.nodes) > 1 else "Time"
    rows = "".join(
        f"<tr><td>{swatch(CLASSES[activity])}{activity}</td>"
        f'<td class="number">{duration(seconds)}</td><td class="number">{share(seconds, whole_s)}</td></tr>'
        for activity, seconds in in_order.items()
    )
    return f'<section>\n<h2>{title}</h2>\n{split_bar(in_order)}\n<table class="times">{rows}</table>\n</section>'


def _nodes(run: Run) -> str:
    if len(run.nodes) == 1:
        return ""
    titles = "".join(f'<th class="number">{activity}</th>' for activity in MEANINGS)
    shown = zip(run.nodes[:NODES_DRAWN_MAX], agent_names(run.nodes), strict=False)
    rows = "".join(_node_row(run, node, name) for node, name in shown)
    return (
        '<section>\n<h2>Agents</h2>\n<div class="scroll"><table>'
        '<tr><th class="number">node</th><th>host</th><th>outcome</th><th class="number">length</th>'
        f"{titles}<th>directory</th></tr>{rows}</table></div>\n</section>"
    )


def _node_row(run: Run, node: Node, name: str) -> str:
    spent = node.time_s()
    cells = "".join(f'<td class="number">{duration(spent[each]) if each in spent else ""}</td>' for each in MEANINGS)
    rank = "" if node.group_rank is None else str(node.group_rank)
    if run.was_left_behind(node):
        rank = f"was {rank}"
    return (
        f'<tr><td class="number">{rank}</td><td class="host">{_text(name)}</td>'
        f'<td class="host">{_tag(node.outcome)}</td><td class="number">{duration(node.length_s)}</td>'
        f"{cells}<td>{_path(node.directory)}</td></tr>"
    )


def _attempts(run: Run) -> str:
    if not run.rounds:
        return "<section>\n<h2>Attempts</h2>\n<p>No attempt is recorded.</p>\n</section>"
    shown = list(run.rounds)
    left_out = len(shown) - ATTEMPTS_HEAD - ATTEMPTS_TAIL
    parts = [_attempt(run, each) for each in (shown if left_out <= 0 else shown[:ATTEMPTS_HEAD])]
    if left_out > 0:
        parts.append(f'<p class="quiet">{left_out:,} attempts are left out here; holdfast report --json has all.</p>')
        parts += [_attempt(run, each) for each in shown[-ATTEMPTS_TAIL:]]
    return f"<section>\n<h2>Attempts</h2>\n{_joined(parts)}\n</section>"


def _attempt(run: Run, each: Round) -> str:
    attempts = list(each.attempts.values())
    ran_s = [a.end_s - a.begin_s for a in attempts if a.begin_s is not None and a.end_s is not None]
    ran = f" after {duration(max(ran_s))}" if ran_s else ""
    because = why(each)
    summary = f"<b>{each.key[0].capitalize()} {each.key[1]}</b> {_tag(each.outcome)}{ran}" + (
        f': <span class="quiet">{escape(because)}</span>' if because else ""
    )
    facts = {
        "restart": str(attempts[0].restart),
        "nodes": str(each.size()),
        "workers": str(each.world_size() or ""),
        "waited": duration(max(attempt.waited_s for attempt in attempts)) if ran_s else "",
        "started in": duration(max(attempt.started_s for attempt in attempts)) if ran_s else "",
        "ran": duration(max(ran_s)) if ran_s else "",
        "ended": _text(one_line(each.reason)),
        "decision": escape(decided(each.verdict)) if each.verdict else "",
        "stacks": "<br>".join(_path(stacks.file) + _outliers(stacks.outliers) for a in attempts for stacks in a.stacks),
    }
    is_open = " open" if each.verdict is not None and each.verdict is run.verdict else ""
    inside = f'<div class="inside">{_facts(facts)}{_failures(each)}</div>'
    return f"<details{is_open}><summary>{summary}</summary>{inside}</details>"


def _failures(each: Round) -> str:
    failures = each.failures()
    if not failures:
        return ""
    rows = "".join(
        f'<tr><td class="number">{failure.rank}</td><td class="host">{_text(failure.host)}</td>'
        f"<td>{escape(what(failure))}</td><td>{_path(failure.where)}</td><td>{_path(failure.log_file)}</td></tr>"
        for failure in failures[:FAILURES_MAX]
    )
    more = len(failures) - FAILURES_MAX
    note = f'<p class="quiet">and {more:,} more failures</p>' if more > 0 else ""
    return (
        '<div class="scroll"><table><tr><th class="number">rank</th><th>host</th><th>failure</th><th>where</th>'
        f"<th>log file</th></tr>{rows}</table></div>{note}"
    )


def _meanings(run: Run) -> str:
    rows = {str(activity): text for activity, text in MEANINGS.items()}
    notes = "".join(f"<p>{_text(note)}</p>" for note in run.notes)
    known = f"<h2>Notes</h2>\n{notes}\n" if notes else ""
    sum_up = '<p class="quiet">Together they add up to the length of the run.</p>'
    return f"<section>\n{known}<h2>What the words mean</h2>\n{_facts(rows)}\n{sum_up}\n</section>"
