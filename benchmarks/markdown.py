"""Results as tables of Markdown, and the place in a text that holds one.

A text holds a table between `<!-- benchmark: headlines -->` or `<!-- benchmark: everything -->` and
`<!-- benchmark: end -->`. All between the two is written anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.words import HOW_TO_READ, NAMES, facts, limit, median_of, ratio, target, with_quartiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring import Measurement
    from benchmarks.results import Results

_PLACE = re.compile(r"(<!-- benchmark: (headlines|everything) -->\n).*?(<!-- benchmark: end -->)", re.DOTALL)


class NoPlaceError(Exception):
    """Results cannot be written there: a text without a place for a table, or a path without a directory."""


def filled(text: str, results: Results) -> str:
    """The text with these results in every place for them."""
    tables = {"headlines": headlines, "everything": everything}
    require_place(text)
    return _PLACE.sub(lambda found: f"{found[1]}{tables[found[2]](results)}{found[3]}", text)


def require_place(text: str) -> None:
    """Raises NoPlaceError if there is none."""
    if not _PLACE.search(text):
        raise NoPlaceError("there is no <!-- benchmark: headlines --> … <!-- benchmark: end --> in it")


def headlines(results: Results) -> str:
    """The rows that say most, in one table."""
    rows = []
    for topic, group in results.by_topic():
        chosen = [_row(each, median_of) for each in group if each.is_headline]
        rows += [[f"**{topic.title}**", "", "", "", "", ""], *chosen] if chosen else []
    return f"\n{_table(rows)}\n{HOW_TO_READ}\n\nMeasured on: {facts(results)}.\n\n"


def everything(results: Results) -> str:
    """A section for each topic, with the quartiles."""
    parts = [f"\nMeasured on: {facts(results)}.\n"]
    for topic, group in results.by_topic():
        rows = [_row(each, with_quartiles) for each in group]
        parts.append(f"### {topic.title}\n\n{topic.about}\n\n{_table(rows)}")
    return "\n".join(parts) + "\n"


def _row(measurement: Measurement, shown: Callable[[Measurement, str], str]) -> list[str]:
    what = f"{measurement.what}, {measurement.unit}" if measurement.unit else measurement.what
    targets = "<br>".join(target(verdict) for verdict in measurement.verdicts())
    contestants = [shown(measurement, HOLDFAST), shown(measurement, TORCH)]
    return [what, *contestants, ratio(measurement), limit(measurement), targets]


def _table(rows: list[list[str]]) -> str:
    heading = ["what", NAMES[HOLDFAST], NAMES[TORCH], f"÷ {NAMES[TORCH]}", "limit", "target"]
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
