"""The frame of every measurement: contestants in turns, medians with their quartiles, and the targets to meet."""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from benchmarks.subject import HOLDFAST, TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.topics import Topic

Rounds = list[list[float]]
"""The samples of one contestant, a list for each round."""

_Answer = TypeVar("_Answer")


def in_turns(
    rounds: int,
    contestants: Mapping[str, Callable[[int], _Answer]],
    *,
    is_hopeless: Callable[[_Answer], bool] = lambda _: False,
) -> dict[str, list[_Answer]]:
    """Ask every contestant once a round, one after the other, so that all see the same moods of the machine.

    One whose answers were hopeless in more than half of all rounds is not asked again: its median is settled.
    """
    answers: dict[str, list[_Answer]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, ask in contestants.items():
            if 2 * sum(map(is_hopeless, answers[name])) <= rounds:
                answers[name].append(ask(number))
    return answers


class Spread(NamedTuple):
    """A median and the quartiles around it."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        return cls(*quantiles(values, n=4, method="inclusive"))


class Target(NamedTuple):
    """What holdfast must reach: a bound on its median, or on its ratio to the contestant `against`."""

    bound: float
    at_most: bool
    against: str = ""


class Verdict(NamedTuple):
    target: Target
    value: float
    is_met: bool


class Measurement:
    """One quantity: its samples by contestant. Who is neither holdfast nor torch is the limit.

    Ratios are taken round by round: what slows the machine for a while slows both sides of the fraction.
    A sample of `ceiling` or more did not come to its end by then. A headline is what a reader in a hurry should see.
    """

    def __init__(
        self,
        what: str,
        unit: str,
        samples: Mapping[str, Rounds],
        targets: Sequence[Target] = (),
        *,
        topic: Topic,
        ceiling: float | None = None,
        nodes: int = 0,
        is_headline: bool = False,
    ) -> None:
        self.topic = topic
        self.what = what
        self.unit = unit
        self.samples = dict(samples)
        self.targets = tuple(targets)
        self.ceiling = ceiling
        self.nodes = nodes
        self.is_headline = is_headline

    def limit(self) -> str:
        """The name of the limit; "" if there is none."""
        return next((name for name in self.samples if name not in (HOLDFAST, TORCH)), "")

    def spread(self, contestant: str) -> Spread | None:
        """None if it was not measured."""
        if contestant not in self.samples:
            return None
        return Spread.of([sample for samples in self.samples[contestant] for sample in samples])

    def is_unfinished(self, contestant: str) -> bool:
        """Whether its median only says how long it was waited for."""
        spread = self.spread(contestant)
        return self.ceiling is not None and spread is not None and spread.median >= self.ceiling

    def ratio(self, numerator: str, denominator: str) -> Spread | None:
        """None where it has no meaning: one of them was not measured, or the denominator was zero."""
        if numerator not in self.samples or denominator not in self.samples:
            return None
        # One that was not asked again has fewer rounds.
        medians = [
            (median(above), median(below))
            for above, below in zip(self.samples[numerator], self.samples[denominator], strict=False)
        ]
        if not all(below for _, below in medians):
            return None
        return Spread.of([above / below for above, below in medians])

    def verdicts(self) -> list[Verdict]:
        return [self._verdict(target) for target in self.targets]

    def _verdict(self, target: Target) -> Verdict:
        spread = self.ratio(HOLDFAST, target.against) if target.against else self.spread(HOLDFAST)
        assert spread is not None, f"{self.what}: there is nothing to compare with"
        value = spread.median
        return Verdict(target, value, value <= target.bound if target.at_most else value >= target.bound)
