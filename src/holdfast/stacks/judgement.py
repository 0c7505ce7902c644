"""Which rank the others wait for, and why, in one sentence. Pure.

A rank inside a collective waits, so the rank to blame is elsewhere. If all wait, the best guess is the rank that is not
where most are, then the one that is furthest behind by its heartbeats. If neither says anything, the sentence says so.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.errors.text import visible_line
from holdfast.stacks.grouping import outliers
from holdfast.stacks.waiting import Stance, position
from holdfast.stacks.wording import named, place_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.stacks.grouping import Group
    from holdfast.stacks.parse import Stacks

PLACES_MAX = 4
"""How many places a sentence names. The stacks have them all."""


LINES_MAX = 8
"""How many groups of survivors are listed."""


class Judgement(Struct, frozen=True):
    """The ranks to blame, the most suspicious first; none if no rank stands out. `sentence` says why."""

    blamed: tuple[int, ...]
    sentence: str


def judge(
    stacks: Mapping[int, Stacks],
    groups: Sequence[Group],
    ended: Collection[int] = (),
    missing: Collection[str] = (),
) -> Judgement:
    """The ranks to blame for a hang.

    `groups` are the groups of `stacks`. `ended` are ranks whose process has ended already. `missing` are the names of
    ranks or nodes that sent nothing.
    """
    if not groups:
        return Judgement((), "no rank could be inspected")
    scene = _Scene(stacks, groups, ended, missing)
    stances = {scene.positions[rank].stance for rank in stacks}
    if len(stacks) == 1 and not ended and not missing:
        return Judgement((), f"the only rank: {place_line(groups[0])}")
    if max(stances) < Stance.MAY_WAIT:
        return scene.nobody_waits(min(stances), max(stances))
    if min(stances) < Stance.MAY_WAIT:
        return scene.some_are_elsewhere(min(stances))
    return scene.all_wait(min(stances), max(stances))


def suspects(stacks: Mapping[int, Stacks], groups: Sequence[Group], failed: Collection[int]) -> Judgement:
    """The surviving ranks that the `failed` ranks may have waited for in vain. `groups` are the groups of `stacks`."""
    positions = {rank: position(each) for rank, each in stacks.items()}
    least = min((each.stance for each in positions.values()), default=Stance.WAITS)
    if least >= Stance.MAY_WAIT:
        return Judgement((), "")
    blamed = tuple(sorted(rank for rank, each in positions.items() if each.stance is least))
    places = _shortened([_clause(each, mine, "was", "were") for each in groups if (mine := _among(each, blamed))])
    it = "it" if len(blamed) == 1 else "them"
    return Judgement(
        blamed, f"{', '.join(places)}, not in a collective: {named(sorted(failed))} may have waited for {it}"
    )


def where_lines(stacks: Mapping[int, Stacks], groups: Sequence[Group]) -> list[str]:
    """Where the ranks are, one line a group: "ranks 1-3: /srv/loader.py:12 in read"."""
    lines = []
    for each in groups[:LINES_MAX]:
        call = visible_line(position(stacks[each.ranks[0]]).call)
        lines.append(f"{named(each.ranks)}: {place_line(each)}" + (f", in {call}" if call else ""))
    more = sum(len(each.ranks) for each in groups[LINES_MAX:])
    return [*lines, f"and {more} more"] if more else lines


class _Scene:
    """The facts of one judgement."""

    def __init__(
        self,
        stacks: Mapping[int, Stacks],
        groups: Sequence[Group],
        ended: Collection[int],
        missing: Collection[str],
    ) -> None:
        self.positions = {rank: position(each) for rank, each in stacks.items()}
        self._steps = {rank: each.step for rank, each in stacks.items() if each.step >= 0}
        self._groups = groups
        self._ended = sorted(ended)
        self._missing = [visible_line(name) for name in sorted(missing)]

    def nobody_waits(self, least: Stance, most: Stance) -> Judgement:
        """No rank is in a call that is known to wait. Blame the ranks that cannot run, or else the outliers."""
        few = self._at(least) if least is Stance.STANDS and most is not least else outliers(self._groups)
        if few:
            verb = "is" if len(few) == 1 else "are"
            places = _shortened([place_line(each) for each in self._groups if each.ranks[0] in few])
            return Judgement(
                self._in_order(few), f"{named(few)} {verb} in a different place than the others: {'; '.join(places)}"
            )
        behind = self._furthest_behind()
        if len(self._groups) == 1:
            count = len(self.positions)
            who = f"all {count} ranks are" if count > 1 else "the only remaining rank is"
            said = [f"{who} at the same place: {place_line(self._groups[0])}"]
        else:
            said = [f"the {len(self.positions)} ranks are at {len(self._groups)} places"]
            said[0] += "" if behind else ", and none stands out"
        return Judgement(behind, "; ".join(filter(None, [*said, self._lag(behind), self._absent()])))

    def some_are_elsewhere(self, least: Stance) -> Judgement:
        """Some ranks wait. Blame the ranks that do not."""
        blamed = self._at(least)
        places = _shortened([_clause(each, mine) for each in self._groups if (mine := _among(each, blamed))])
        waiting = [rank for rank, each in self.positions.items() if each.stance >= Stance.MAY_WAIT]
        return Judgement(self._in_order(blamed), f"{', '.join(places)}; {self._wait(waiting, len(blamed))}")

    def all_wait(self, least: Stance, most: Stance) -> Judgement:
        if self._ended or self._missing:
            count = len(self._ended) + 2 * len(self._missing)  # a node may have several ranks
            return Judgement((), f"{self._absent()}; {self._wait(list(self.positions), count)}")
        behind = self._furthest_behind()
        lag = self._lag(behind)
        if len(self._groups) == 1:
            group = self._groups[0]
            end = lag or "none stands out; the collective itself or the network is stuck"
            where = f"{self._call(group)} at {place_line(group)}"
            return Judgement(behind, f"all {len(group.ranks)} ranks wait in {where}: {end}")
        blamed = outliers(self._groups) or behind
        if not blamed and least is not most:
            blamed = self._at(least)
        calls = [f"{named(each.ranks)} in {self._call(each)} at {place_line(each)}" for each in self._groups]
        said = [f"the ranks wait in different calls: {', '.join(_shortened(calls))}"]
        return Judgement(self._in_order(blamed), "; ".join(filter(None, [*said, lag])))

    def _at(self, stance: Stance) -> list[int]:
        return [rank for rank, each in self.positions.items() if each.stance is stance]

    def _in_order(self, ranks: Collection[int]) -> tuple[int, ...]:
        """Sort ranks: the furthest behind first, then those with the fewest others at their place."""
        size = {rank: len(each.ranks) for each in self._groups for rank in each.ranks}
        last = float("inf")
        return tuple(sorted(ranks, key=lambda rank: (self._steps.get(rank, last), size[rank], rank)))

    def _furthest_behind(self) -> tuple[int, ...]:
        """The ranks with the lowest step, if all ranks reported one and these are fewer than half, or one of two."""
        steps = {self._steps.get(rank, -1) for rank in self.positions}
        if len(steps) < 2 or -1 in steps:  # noqa: PLR2004 - all at the same step: none is behind
            return ()
        behind = tuple(sorted(rank for rank in self.positions if self._steps[rank] == min(steps)))
        is_few = 2 * len(behind) < len(self.positions) or len(self.positions) == 2  # noqa: PLR2004 - one of two
        return behind if is_few else ()

    def _lag(self, behind: Sequence[int]) -> str:
        if not behind:
            return ""
        verb = "is" if len(behind) == 1 else "are"
        first, last = self._steps[behind[0]], max(self._steps.values())
        return f"{named(behind)} {verb} furthest behind, at step {first} while others are at {last}"

    def _wait(self, waiting: Sequence[int], for_how_many: int) -> str:
        is_sure = any(self.positions[rank].stance is Stance.WAITS for rank in waiting)
        verb = ("waits" if len(waiting) == 1 else "wait") if is_sure else "may wait"
        calls = _shortened([visible_line(self.positions[rank].call) for rank in waiting])
        return f"{named(waiting)} {verb} for {'it' if for_how_many == 1 else 'them'} in {' or '.join(calls)}"

    def _call(self, group: Group) -> str:
        return visible_line(self.positions[group.ranks[0]].call)

    def _absent(self) -> str:
        parts = []
        if self._ended:
            parts.append(f"{named(self._ended)} {'has' if len(self._ended) == 1 else 'have'} ended already")
        if self._missing:
            parts.append(f"nothing is known of {', '.join(_shortened(self._missing))}")
        return ", and ".join(parts)


def _among(group: Group, ranks: Collection[int]) -> list[int]:
    return [rank for rank in group.ranks if rank in ranks]


def _clause(group: Group, ranks: Sequence[int], singular: str = "is", plural: str = "are") -> str:
    where = place_line(group)
    if not group.frames:
        return f"{named(ranks)}: {where}"
    return f"{named(ranks)} {singular if len(ranks) == 1 else plural} at {where}"


def _shortened(parts: Sequence[str]) -> list[str]:
    unique = list(dict.fromkeys(parts))
    return [*unique[:PLACES_MAX], "..."] if len(unique) > PLACES_MAX else unique
