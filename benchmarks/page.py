"""Results as one page of HTML that needs nothing else: no network, no scripts, no other files."""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING

from benchmarks.plots import axis_line, axis_of, axis_unit, css_class, lines, mark, strip
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.words import HOW_TO_READ, NAMES, RATES, bound_of, limit, median_of, ratio, target, with_quartiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring import Measurement
    from benchmarks.results import Results
    from benchmarks.topics import Topic

# A browser runs nothing of the page and fetches nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_COLUMNS = ("", "unit", NAMES[HOLDFAST], NAMES[TORCH], f"÷ {NAMES[TORCH]}", "limit", "target")


def page(results: Results) -> str:
    topics = "\n".join(_topic(topic, group) for topic, group in results.by_topic())
    quick = '<p class="card">A quick run: few rounds, small sizes.</p>' if results.is_quick else ""
    with open(os.path.join(os.path.dirname(__file__), "page.css"), encoding="utf-8") as file:
        style = file.read()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>holdfast beside torchrun</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        "<h1>holdfast beside torchrun</h1>\n"
        f"<p>{escape(HOW_TO_READ)} Axes are logarithmic, whiskers are quartiles.</p>\n"
        f"{_legend()}{_missed(results)}{quick}\n{_facts(results.machine)}\n{topics}\n{_whole(results)}\n"
        "</main>\n</body>\n</html>\n"
    )


def _legend() -> str:
    names = {**NAMES, "limit": "limit: the least that could do the work, on the same machine"}
    return (
        '<ul class="legend">'
        + "".join(f"<li>{_swatch(name)}{escape(text)}</li>" for name, text in names.items())
        + "</ul>"
    )


def _swatch(contestant: str) -> str:
    return (
        '<svg class="swatch" width="18" height="20" aria-hidden="true">'
        f'<svg x="9" y="10" overflow="visible">{mark(contestant)}</svg></svg>'
    )


def _missed(results: Results) -> str:
    missed = results.missed()
    targets = sum(len(each.targets) for each in results.measurements)
    if not missed:
        return f'<p><span class="badge good">✓ all {targets} targets met</span></p>' if targets else ""
    return f'<p><span class="badge bad">✕ {missed} of {targets} targets missed</span></p>'


def _facts(machine: dict[str, str]) -> str:
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in machine.items())
    return f'<dl class="facts">{rows}</dl>'


def _topic(topic: Topic, measurements: Sequence[Measurement]) -> str:
    """A plot for each unit, and a line plot of those that have a number of nodes."""
    by_unit: dict[str, list[Measurement]] = {}
    over_nodes = [each for each in measurements if each.nodes]
    for each in measurements:
        if not each.nodes or len(over_nodes) == 1:
            by_unit.setdefault(axis_unit(each), []).append(each)
    plots = [lines(over_nodes)] if len(over_nodes) > 1 else []
    plots += [_plot(unit, group) for unit, group in by_unit.items()]
    body = "".join(f'<div class="plot">{plot}</div>' for plot in plots)
    said = f'<h2>{escape(topic.title)}</h2><p class="quiet">{escape(topic.about)}</p>'
    return f'<section class="card">{said}{body}</section>'


def _plot(unit: str, measurements: Sequence[Measurement]) -> str:
    axis = axis_of(measurements)
    rows = []
    for each in measurements:
        drawn = strip(each, axis) if axis else ""
        rows.append(f'<div class="row"><div class="said"><b>{escape(each.what)}</b>{_values(each)}</div>{drawn}</div>')
    hint = "more is better →" if unit in RATES else "← less is better"
    scale = f'{axis_line(axis, unit)}<p class="hint">{hint}</p>' if axis else ""
    return "".join(rows) + scale


def _values(measurement: Measurement) -> str:
    said = [
        f'<span class="value {css_class(name)}">{escape(NAMES.get(name, name))} '
        f"{escape(median_of(measurement, name))} {escape(measurement.unit)}</span>"
        for name in (HOLDFAST, TORCH, measurement.limit())
        if name in measurement.samples
    ]
    if text := ratio(measurement):
        said.append(f'<span class="value">÷ {NAMES[TORCH]}: {escape(text)}</span>')
    for verdict in measurement.verdicts():
        kind, sign = ("good", "✓ target") if verdict.is_met else ("bad", "✕ target missed:")
        said.append(f'<span class="value {kind}">{sign} {escape(bound_of(verdict))}</span>')
    return f'<span class="values">{"".join(said)}</span>'


def _whole(results: Results) -> str:
    heading = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    body = []
    for topic, group in results.by_topic():
        body.append(f'<tr><th class="topic" colspan="{len(_COLUMNS)}">{escape(topic.title)}</th></tr>')
        for each in group:
            cells = (
                each.what,
                each.unit,
                with_quartiles(each, HOLDFAST),
                with_quartiles(each, TORCH),
                ratio(each),
                limit(each),
            )
            targets = "<br>".join(escape(target(verdict)) for verdict in each.verdicts())
            body.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}<td>{targets}</td></tr>")
    return (
        '<section><h2>All of it</h2><div class="scroll"><table>'
        f"<thead><tr>{heading}</tr></thead><tbody>{''.join(body)}</tbody></table></div></section>"
    )
