"""Which ranks are at the same place, and which are outliers. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from holdfast.errors.diagnosis import LIBRARIES
from holdfast.stacks.parse import Frame, Stacks  # noqa: TC001 - msgspec reads the annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INNERMOST_FRAMES = 3
"""So many extra library frames still count as the same place: a waiting rank may just be reading the clock."""

_PACKAGE = re.compile(r".*/(?:site|dist)-packages/[^/]+/|.*/")
_SHARED_LIBRARY = re.compile(r"\.so(?:\.[\d.]+)?$")
_STARTERS = ("<frozen ", "/runpy.py", *(part for part in LIBRARIES if part.endswith("/holdfast")))
"""Files that start a program, and are no part of it."""


class Group(Struct, frozen=True):
    """Ranks at the same place. `frames` are from the main thread of the first rank, the innermost first."""

    ranks: tuple[int, ...]
    state: str
    frames: tuple[Frame, ...]


class Place(Struct, frozen=True):
    """Where a main thread is.

    Attributes:
        state: the remark on its process.
        own: the frames of the user's code, with line numbers, the outermost first.
        tail: the library frames that the innermost of those called, without line numbers.
    """

    state: str
    own: tuple[tuple[str, int, str], ...]
    tail: tuple[tuple[str, str], ...]


def group(stacks: Mapping[int, Stacks]) -> list[Group]:
    """The ranks by place, the smallest group first; groups of equal size by their lowest rank."""
    members: list[tuple[Place, list[int]]] = []
    for rank in sorted(stacks):
        place = place_of(stacks[rank])
        together = next((ranks for other, ranks in members if is_same(place, other)), None)
        if together is None:
            members.append((place, [rank]))
        else:
            together.append(rank)
    groups = [Group(tuple(ranks), place.state, _main_frames(stacks[ranks[0]])) for place, ranks in members]
    return sorted(groups, key=lambda group: (len(group.ranks), group.ranks))


def outliers(groups: Sequence[Group]) -> list[int]:
    """The ranks of the smallest groups, if they are fewer than half of all ranks; else none."""
    if len(groups) < 2:  # noqa: PLR2004 - one group has no outliers
        return []
    least = min(len(group.ranks) for group in groups)
    few = sorted(rank for group in groups if len(group.ranks) == least for rank in group.ranks)
    return few if 2 * len(few) < sum(len(group.ranks) for group in groups) else []


def place_of(stacks: Stacks) -> Place:
    frames = _main_frames(stacks)[::-1]
    is_own = _ownership(frames)
    depth = max((place + 1 for place, frame in enumerate(frames) if is_own(frame)), default=0)
    return Place(
        stacks.state,
        tuple((frame.file, frame.line, _name(frame)) for frame in frames[:depth] if is_own(frame)),
        tuple((frame.file, _name(frame)) for frame in frames[depth:]),
    )


def is_same(place: Place, other: Place) -> bool:
    """Whether two main threads are at the same place.

    The user's code must match line by line. The library that it called may be a little deeper in one of them, or in
    another function of the same file.
    """
    if (place.state, place.own) != (other.state, other.own):
        return False
    common = 0
    for frame, other_frame in zip(place.tail, other.tail, strict=False):
        if frame != other_frame:
            break
        common += 1
    rest, other_rest = place.tail[common:], other.tail[common:]
    if not rest or not other_rest:
        return max(len(rest), len(other_rest)) <= INNERMOST_FRAMES  # one is deeper in the same call
    return len(rest) == len(other_rest) == 1 and rest[0][0] == other_rest[0][0]


def library_calls(stacks: Stacks) -> tuple[Frame, ...]:
    """The library frames that the innermost frame of the user's code called, the innermost first."""
    frames = _main_frames(stacks)
    is_own = _ownership(frames[::-1])
    depth = next((place for place, frame in enumerate(frames) if is_own(frame)), len(frames))
    return frames[:depth]


def is_library(frame: Frame) -> bool:
    return any(part in frame.file for part in LIBRARIES) or _SHARED_LIBRARY.search(frame.file) is not None


def _main_frames(stacks: Stacks) -> tuple[Frame, ...]:
    return stacks.main.frames if stacks.main is not None else ()


def _ownership(frames: Sequence[Frame]) -> _Ownership:
    """Recognises the program's own frames. A program that is installed as a package owns that package."""
    if not all(map(is_library, frames)):
        return _Ownership("")
    program = next((frame for frame in frames if not any(part in frame.file for part in _STARTERS)), None)
    if program is None:
        return _Ownership("")
    package = _PACKAGE.match(program.file)
    return _Ownership(package[0] if package else program.file)


class _Ownership:
    __slots__ = ("_package",)

    def __init__(self, package: str) -> None:
        self._package = package

    def __call__(self, frame: Frame) -> bool:
        return frame.file.startswith(self._package) if self._package else not is_library(frame)


def _name(frame: Frame) -> str:
    """The function without its class, which only some sources of frames report."""
    return frame.function.rpartition(".")[2]
