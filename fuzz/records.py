"""Valid records by hypothesis, which also makes the shortest of those that find something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from fuzz.examination import examine

if TYPE_CHECKING:
    from fuzz.examination import Problem
    from fuzz.target import Target


class _FoundError(Exception):
    """An input that finds something. The shortest one comes last."""

    def __init__(self, data: bytes, problem: Problem) -> None:
        super().__init__(problem.signature)
        self.data = data
        self.problem = problem


def try_records(target: Target, seed: int, examples: int) -> tuple[bytes, Problem] | None:
    """Try so many valid records; returns the shortest that finds something."""
    if target.records is None:
        return None

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(target.records())
    def check(data: bytes) -> None:
        problem = examine(target, data)
        if problem is not None:
            raise _FoundError(data, problem)

    try:
        check()
    except _FoundError as found:
        return found.data, found.problem
    return None
