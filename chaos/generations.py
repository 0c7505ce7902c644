"""Which generation a worker was of: pure.

A number is not enough. Each job of a storm counts from 1, and so does a job that met again in an empty store.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.record import Entry


class Key(NamedTuple):
    """One generation. `epoch` counts how often a job has begun to count anew; keys are in the order of time."""

    job: int
    epoch: int
    number: int

    def __str__(self) -> str:
        job = f" of job {self.job}" if self.job > 1 else ""
        return f"{self.number}{job}" + (f", counted anew {self.epoch} times" if self.epoch else "")


class Numbering:
    """The keys of all workers of a record, by life, and of each time that the world was seen to run or a job to end.

    A job counts anew where a number comes again, or a lower one, with no worker of the job alive. While one is alive
    it is no new count but a world beside another, and the laws have to see that.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.lives: dict[int, Key] = {}
        self.seen: dict[int, Key] = {}
        """By the place of a `settled` entry in the record."""

        self._epochs: dict[int, int] = defaultdict(int)
        self._newest: dict[int, int] = defaultdict(int)
        self._masters: dict[Key, str] = {}
        self._pids: dict[tuple[str, int], Key] = {}
        alive: dict[int, int] = {}
        for place, entry in enumerate(entries):
            if entry["event"] == "begin":
                self._begin(entry, is_alone=job_of(entry) not in alive.values())
                alive[entry["life"]] = job_of(entry)
            elif entry["event"] == "end":
                alive.pop(entry["life"], None)
            elif entry["event"] == "settled":
                self.seen[place] = Key(job_of(entry), self._epochs[job_of(entry)], entry["generation"])

    def _begin(self, life: Entry, *, is_alone: bool) -> None:
        job, number = job_of(life), int(life["environment"]["HOLDFAST_GENERATION"])
        master = f"{life['environment']['MASTER_ADDR']}:{life['environment']['MASTER_PORT']}"
        key = Key(job, self._epochs[job], number)
        if is_alone and (number < self._newest[job] or self._masters.get(key, master) != master):
            self._epochs[job] += 1
            self._newest[job] = 0
            key = Key(job, self._epochs[job], number)
        self._newest[job] = max(number, self._newest[job])
        self._masters.setdefault(key, master)
        self.lives[life["life"]] = key
        self._pids[life["node"], life["pid"]] = key

    def of_attempt(self, told: Entry) -> Key:
        """The generation that an agent told to have started: that of its workers, if one of them was seen."""
        details = told["details"]
        seen = [self._pids[told["node"], pid] for pid in details.get("pids", ()) if (told["node"], pid) in self._pids]
        found = [key for key in seen if key.number == details["generation"]]
        return found[-1] if found else Key(job_of(told), self._epochs[job_of(told)], details["generation"])


def job_of(entry: Entry) -> int:
    job: Any = entry.get("job", 1)
    return int(job)


def between(known: Sequence[Key], before: Key, after: Key) -> Iterator[Key]:
    """The generations that were over when `after` ran, from `before` on."""
    return (key for key in known if before <= key < after)


def count_between(before: Key, after: Key) -> int:
    """How many generations ended from one to the other."""
    return after.number - before.number if before[:2] == after[:2] else max(1, after.number)
