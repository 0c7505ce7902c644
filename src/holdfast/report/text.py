"""A run as text for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from holdfast.errors.advice import advice
from holdfast.errors.text import visible_line
from holdfast.report.records import Activity, Outcome
from holdfast.report.strip import columns
from holdfast.report.units import (
    agents,
    command,
    decided,
    duration,
    last_lines,
    length,
    moment,
    names,
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
    from collections.abc import Iterable, Sequence

    from holdfast.report.records import Attempt, Round, Run

WIDTH_MIN_CHARS = 60
WIDTH_MAX_CHARS = 140

ATTEMPTS_HEAD = 5
ATTEMPTS_TAIL = 15
"""How many of the first and of the last attempts are listed. Those in between are only counted."""

WHY_MIN_CHARS = 56
"""The minimum width of a reason in the table of attempts, however narrow the terminal is."""

NODES_MAX = 32
"""The number of agents with lines of their own."""

WARNINGS_MAX = 20
"""The number of shown warnings."""

WHERE_MAX_LINES = 10
"""How many lines about the positions of a node's workers are shown; its file of stacks has all."""

MESSAGE_MAX_LINES = 15
MESSAGE_MAX_CHARS = 3000

BAR_CHARS = 30

LETTERS = {
    Activity.STARTING: ".",
    Activity.WAITING: "w",
    Activity.RESTARTING: "r",
    Activity.TRAINING: "=",
    Activity.LOST: "x",
}
"""The letters of a time line's columns."""

_RESET, _BOLD, _DIM, _RED, _GREEN, _YELLOW = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
_COLOURS = {Outcome.SUCCEEDED: _GREEN, Outcome.FAILED: _RED, Outcome.LOST: _RED}
_ACTIVITY_COLOURS = {Activity.TRAINING: _GREEN, Activity.LOST: _RED, Activity.RESTARTING: _YELLOW}


def report_text(run: Run, width: int = 100, *, colours: bool = False) -> str:
    """The report in lines of at most `width` characters, except for longer names and messages."""
    return _Writer(min(max(width, WIDTH_MIN_CHARS), WIDTH_MAX_CHARS), colours).report(run)


class _Writer:
    def __init__(self, width: int, colours: bool) -> None:
        self._width = width
        self._colours = colours

    def report(self, run: Run) -> str:
        blocks = [self._header(run), self._verdict(run), self._warnings(run), self._attempts(run), self._time(run)]
        if run.notes:
            blocks.append([line for note in run.notes for line in textwrap.wrap(visible_line(note), self._width)])
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours and colour else text

    def _title(self, text: str) -> str:
        return self._paint(text, _BOLD)

    def _header(self, run: Run) -> list[str]:
        first = run.first()
        facts = {
            "job id": one_line(run.job),
            "command": command(first.command),
            "started": moment(first.started_at),
            "length": length(run),
            "outcome": self._paint(outcome(run), _COLOURS.get(run.outcome, "")),
            "nodes": nodes(run),
            "agents": agents(run),
            "restarts": restarts(run),
            "directory": visible_line(first.directory)
            + (f" and {len(run.nodes) - 1} more" if len(run.nodes) > 1 else ""),
        }
        return [self._title(f"Run {one_line(run.run_id) or '(without an id)'}"), *self._facts(facts.items())]

    @staticmethod
    def _facts(facts: Iterable[tuple[str, str]]) -> list[str]:
        return [f"  {name:10}  {value}" for name, value in facts if value]

    def _verdict(self, run: Run) -> list[str]:
        if run.verdict is None:
            return []
        verdict, cause = run.verdict, run.verdict.cause
        is_final = run.outcome is Outcome.FAILED
        to_do = advice(cause.kind, cause.exception, cause.where)
        lines = [
            self._title("Why it failed" if is_final else "The last failure"),
            f"  {self._paint(f'{who(cause)}: {what(cause)}', _RED if is_final else _YELLOW)}",
            *self._facts(
                {
                    "where": one_line(cause.where),
                    "log file": visible_line(cause.log_file),
                    "memory": f"{cause.max_rss_kib / 1024:,.0f} MiB at its peak" if cause.max_rss_kib else "",
                    "ran": duration(cause.ran_s) if cause.ran_s else "",
                    **others_failed(verdict),
                    "decision": decided(verdict),
                }.items()
            ),
        ]
        message = last_lines(cause.message, MESSAGE_MAX_LINES, MESSAGE_MAX_CHARS)
        if message:
            lines += [f"  {self._paint('|', _DIM)} {line}".rstrip() for line in message]
        for stacks in (stacks for attempt in _attempts_of(run) for stacks in attempt.stacks):
            lines += self._facts([("stacks", visible_line(stacks.file) + _outliers(stacks.outliers))])
            lines += [f"  {'':10}  {one_line(line)}" for line in stacks.where[:WHERE_MAX_LINES]]
        if to_do:
            lines += textwrap.wrap(
                visible_line(to_do), self._width, initial_indent="  What to do: ", subsequent_indent="  "
            )
        return lines

    def _warnings(self, run: Run) -> list[str]:
        told = run.warnings()
        if not told:
            return []
        lines = [self._title("Warnings")]
        for node, each in told[:WARNINGS_MAX]:
            lines += textwrap.wrap(warning(node, each), self._width, initial_indent="  ", subsequent_indent="    ")
        more = len(told) - WARNINGS_MAX
        return [*lines, f"  and {more} more (--json has all)"] if more > 0 else lines

    def _attempts(self, run: Run) -> list[str]:
        if not run.rounds:
            return ["No attempt is recorded."]
        rows = [_row(each) for each in run.rounds]
        left_out = len(rows) - ATTEMPTS_HEAD - ATTEMPTS_TAIL
        head, tail = rows, rows[:0]
        if left_out > 0:
            head, tail = rows[:ATTEMPTS_HEAD], rows[-ATTEMPTS_TAIL:]
        name = "gen" if run.rounds[-1].key[0] == "generation" else "no"
        titles = [name, "restart", "nodes", "workers", "waited", "ran", "outcome", "why"]
        table = _table(titles, [*head, *tail], self._width)
        if tail:
            table.insert(1 + ATTEMPTS_HEAD, f"... {left_out:,} attempts left out (--json has all) ...")
        return [self._title("Attempts"), *(f"  {line}" for line in table)]

    def _time(self, run: Run) -> list[str]:
        spent = run.time_s()
        whole_s = sum(spent.values())
        if not spent:
            return []
        several = len(run.nodes) > 1
        lines = [self._title("Time of all agents together" if several else "Time")]
        for activity, seconds in spent.items():
            bar = "#" * round(BAR_CHARS * seconds / whole_s) if whole_s else ""
            painted = self._paint(f"{bar:{BAR_CHARS}}", _ACTIVITY_COLOURS.get(activity, ""))
            lines.append(f"  {activity:19}  {duration(seconds):>12}  {share(seconds, whole_s):>5}  {painted}".rstrip())
        return [*lines, "", *self._strips(run)]

    def _strips(self, run: Run) -> list[str]:
        """The time lines of all nodes, aligned by the attempts they share."""
        offsets = run.offsets_s()
        end_s = run.length_s()
        shown = run.nodes[:NODES_MAX]
        labels = [
            f"{name}, {node.outcome}" if run.was_left_behind(node) else name
            for node, name in zip(shown, names(run), strict=False)
        ]
        name_chars = max(map(len, labels))
        count = max(self._width - name_chars - 4, 20)
        lines = []
        for name, node, offset in zip(labels, shown, offsets, strict=False):
            cut = columns(node.spans, -offset, end_s - offset, count)
            strip = "".join(self._letter(activity) for activity in cut)
            lines.append(f"  {name:{name_chars}}  {strip}".rstrip())
        if len(run.nodes) > NODES_MAX:
            lines.append(f"  and {len(run.nodes) - NODES_MAX} more agents (--json has all)")
        legend = "  ".join(f"{letter} {activity}" for activity, letter in LETTERS.items())
        return [*lines, f"  {'':{name_chars}}  {self._paint(legend, _DIM)}"]

    def _letter(self, activity: Activity | None) -> str:
        return " " if activity is None else self._paint(LETTERS[activity], _ACTIVITY_COLOURS.get(activity, ""))


def _outliers(ranks: Sequence[int]) -> str:
    return f" ({'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:8]))} stood out)" if ranks else ""


def _attempts_of(run: Run) -> Iterable[Attempt]:
    """The attempts that the run's verdict is about."""
    for each in run.rounds:
        if each.verdict is run.verdict:
            yield from each.attempts.values()


def _row(each: Round) -> list[str]:
    attempts = list(each.attempts.values())
    ran_s = [a.end_s - a.begin_s for a in attempts if a.begin_s is not None and a.end_s is not None]
    return [
        str(each.key[1]),
        str(attempts[0].restart),
        str(each.size()),
        str(each.world_size() or ""),
        duration(max(attempt.waited_s for attempt in attempts)) if ran_s else "",
        duration(max(ran_s)) if ran_s else "",
        str(each.outcome),
        why(each),
    ]


def _table(titles: list[str], rows: list[list[str]], width: int) -> list[str]:
    """A table whose columns fit their contents; the last one gets the rest of `width`."""
    cells = [titles, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles) - 1)]
    left = max(width - 2 - sum(widths) - 2 * len(widths), WHY_MIN_CHARS)
    lines = []
    for row in cells:
        start = "  ".join(_cell(*cell) for cell in zip(row, titles, widths, strict=False))
        last = row[-1] if len(row[-1]) <= left else f"{row[-1][: left - 3]}..."
        lines.append(f"{start}  {last}".rstrip())
    return lines


def _cell(text: str, title: str, width: int) -> str:
    return f"{text:{width}}" if title == "outcome" else f"{text:>{width}}"
