"""Stacks as text for people: first the differences, then everything."""

from __future__ import annotations

import time

from holdfast.errors.text import visible_line
from holdfast.stacks.grouping import is_library
from holdfast.stacks.parse import parse
from holdfast.stacks.wording import frame_line, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.stacks.dump import Dump
    from holdfast.stacks.grouping import Group
    from holdfast.stacks.wire import RankStacks

GROUPS_MAX = 50
"""How many groups are shown. With more groups than that, they say little."""

GROUP_FRAMES_MAX = 30
"""How many of a group's innermost frames are shown. The ranks below have all frames."""

RULE = "-" * 80

_MARKED = "\033[1;31m"
_FAINT = "\033[2m"
_PLAIN = "\033[0m"


def render(dump: Dump, *, colour: bool = False, in_full: bool = True) -> str:
    """The text of a dump. `in_full` adds all threads of every rank."""
    lines = [*_head(dump), "", *_groups(dump, colour=colour)]
    if in_full:
        lines += ["", RULE, "All threads of every rank, the innermost call first", RULE]
        for rank, stacks in dump.ranks.items():
            lines += ["", *_rank(rank, stacks, is_outlier=rank in dump.outliers)]
    return "\n".join(lines) + "\n"


def _head(dump: Dump) -> list[str]:
    moment = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(dump.timestamp))
    lines = [f"run     {visible_line(dump.run_id)}", f"time    {moment}", f"reason  {visible_line(dump.reason)}"]
    lines += [f"ranks   {len(dump.ranks)}"]
    if dump.ended:
        lines += [f"ended   {named(dump.ended)}"]
    lines += [f"missing {visible_line(name)}: {visible_line(why)}" for name, why in dump.missing.items()]
    return lines if not dump.ranks else [*lines, f"result  {visible_line(dump.verdict)}"]


def _groups(dump: Dump, *, colour: bool) -> list[str]:
    lines: list[str] = []
    for group in dump.groups[:GROUPS_MAX]:
        is_outlier = group.ranks[0] in dump.outliers
        lines += _group(group, dump, is_outlier=is_outlier, colour=colour)
    more = len(dump.groups) - GROUPS_MAX
    return [*lines, f"and {more} more groups", ""][:-1] if more > 0 else lines[:-1]


def _group(group: Group, dump: Dump, *, is_outlier: bool, colour: bool) -> list[str]:
    hosts = sorted({dump.ranks[rank].host for rank in group.ranks})
    on = f" on {visible_line(hosts[0])}" if len(hosts) == 1 else f" on {len(hosts)} hosts"
    title = f"{'>>> ' if is_outlier else ''}{named(group.ranks)}{on}, {len(group.ranks)} of {len(dump.ranks)}"
    if is_outlier:
        title += ": in a different place than the others"
    lines = [f"{_MARKED}{title}{_PLAIN}" if colour and is_outlier else title]
    if group.state:
        lines.append(f"    {visible_line(group.state)}")
    for frame in group.frames[:GROUP_FRAMES_MAX]:
        text = f"    {frame_line(frame)}"
        lines.append(f"{_FAINT}{text}{_PLAIN}" if colour and is_library(frame) else text)
    more = len(group.frames) - GROUP_FRAMES_MAX
    if more > 0:
        lines.append(f"    and {more} more, see below")
    return [*lines, ""]


def _rank(rank: int, stacks: RankStacks, *, is_outlier: bool) -> list[str]:
    known = parse(stacks.text)
    mark = ">>> " if is_outlier else ""
    lines = [f"{mark}rank {rank}: PID {stacks.pid} on {visible_line(stacks.host)}"]
    lines += [
        f"  {visible_line(remark)}" for remark in (known.state, known.source and f"from {known.source}") if remark
    ]
    threads = sorted(known.threads, key=lambda thread: not thread.is_main)
    for thread in threads:
        kind = "main thread" if thread.is_main else "thread"
        name = "" if thread.name == "MainThread" else f" {visible_line(thread.name)}"
        lines += [f"  {kind}{name}", *(f"    {frame_line(frame)}" for frame in thread.frames)]
        if not thread.frames:
            lines.append("    no Python frame")
    if not threads and not known.state:
        lines += [f"  {visible_line(line)}" for line in stacks.text.splitlines()]
    return lines
