"""The workers of a job as a test saw them live and die, and what must be true of them whatever happened.

A *generation* is the set of workers that were told of each other: of one master address, port, world size and restart
count. holdfast says its number in HOLDFAST_GENERATION.
"""

from __future__ import annotations

from collections import defaultdict


class Life:
    """One worker process. `last_sign_ns` is the last time of its own clock that it sent."""

    def __init__(self, said):
        self.node = said["node"]
        self.host = said["host"]
        self.pid = said["pid"]
        self.words = said["words"]
        self.environment = said["environment"]
        self.started_ns = self.last_sign_ns = said["at_ns"]
        self.said = [said]
        self.has_ended = False
        self.seen_with = set()
        """The lives of other generations that had not ended when this one was seen to have begun."""

    def add(self, said):
        self.said.append(said)
        self.last_sign_ns = said["at_ns"]

    def heard(self, event):
        """When it said this for the first time, in nanoseconds, or None."""
        return next((said["at_ns"] for said in self.said if said["event"] == event), None)

    def _number(self, name):
        return int(self.environment[name])

    rank = property(lambda self: self._number("RANK"))
    local_rank = property(lambda self: self._number("LOCAL_RANK"))
    group_rank = property(lambda self: self._number("GROUP_RANK"))
    world_size = property(lambda self: self._number("WORLD_SIZE"))
    restart_count = property(lambda self: self._number("TORCHELASTIC_RESTART_COUNT"))

    @property
    def master(self):
        return f"{self.environment['MASTER_ADDR']}:{self.environment['MASTER_PORT']}"

    @property
    def generation(self):
        number = self.environment.get("HOLDFAST_GENERATION")
        return number or f"{self.master}, {self.world_size} workers, restart {self.restart_count}"

    def __repr__(self):
        state = "ended" if self.has_ended else "alive"
        return (
            f"{self.node} pid {self.pid}: rank {self.rank} of {self.world_size}, group rank {self.group_rank}, "
            f"local rank {self.local_rank}, restart {self.restart_count}, master {self.master}, "
            f"generation {self.generation}; {state}, {[said['event'] for said in self.said]}"
        )


def problems(lives):
    """All that is wrong with these workers, in words; nothing if all is well.

    Generations do not overlap in time, on one node or across nodes; in each of them everybody agrees on what it is,
    and no rank is there twice. A generation that broke early may lack ranks.
    """
    generations = defaultdict(list)
    for life in lives:
        generations[life.generation].append(life)
    return [*_overlaps(lives), *(problem for name in generations for problem in _disagreements(generations[name]))]


def is_world(lives, size):
    """Whether these are all the workers of a world: each rank once, with one master."""
    return (
        sorted(life.rank for life in lives) == list(range(size))
        and {life.world_size for life in lives} == {size}
        and len({life.master for life in lives}) == 1
    )


def _overlaps(lives):
    """Both what was seen and what the clocks prove: a late look can miss an overlap, and so can a worker's silence."""
    for later in lives:
        for earlier in lives:
            if earlier.generation == later.generation or earlier.started_ns > later.started_ns:
                continue
            if earlier in later.seen_with or later in earlier.seen_with or earlier.last_sign_ns > later.started_ns:
                yield f"two generations at once:\n  {earlier}\n  {later}"


def _disagreements(lives):
    name = lives[0].generation
    for what in ("world_size", "master", "restart_count"):
        values = {getattr(life, what) for life in lives}
        if len(values) > 1:
            yield f"generation {name} does not agree on its {what}: {sorted(values)}"
    ranks = sorted(life.rank for life in lives)
    if len(set(ranks)) < len(ranks) or ranks[-1] >= lives[0].world_size:
        yield f"generation {name} of {lives[0].world_size} has ranks {ranks}"
    groups = defaultdict(set)
    for life in lives:
        groups[life.node].add((life.group_rank, life.rank - life.local_rank))
    if any(len(places) > 1 for places in groups.values()) or len({min(p) for p in groups.values()}) < len(groups):
        yield f"generation {name} has nodes whose ranks do not follow each other: {dict(groups)}"
