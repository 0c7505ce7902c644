"""Ranks and places in words."""

from __future__ import annotations

from holdfast.errors.text import visible_line
from holdfast.stacks.grouping import is_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.stacks.grouping import Group
    from holdfast.stacks.parse import Frame

RANGES_MAX = 20
"""How many ranges of ranks a line lists."""


def named(ranks: Sequence[int]) -> str:
    """Ranks for a line of text: "rank 3", "ranks 0-2, 4-7"."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:RANGES_MAX]]
    more = ", ..." if len(ranges) > RANGES_MAX else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(shown)}{more}"


def place_line(group: Group) -> str:
    """The innermost frame of a group in the user's code; else the innermost frame, or the process's state."""
    own = next((frame for frame in group.frames if not is_library(frame)), next(iter(group.frames), None))
    known = [visible_line(group.state)] if group.state else []
    return ", ".join([*([frame_line(own)] if own else []), *known]) or "nothing is known"


def frame_line(frame: Frame) -> str:
    return visible_line(str(frame))
