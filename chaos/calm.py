"""How much of the time a training went on undisturbed: pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.record import Entry

STEP_MAX_S = 1.0
"""A training whose next step takes longer than this is disturbed, from the last step on. A step takes 50 ms, and a few
times as much on a busy machine.
"""


def undisturbed_share(entries: Sequence[Entry], since_s: float, until_s: float) -> float:
    """The share of the time between the two in which the training made one step after the other."""
    if until_s <= since_s:
        return 1.0
    steps = [entry["at_s"] for entry in entries if entry["event"] == "fact" and "step" in entry]
    before = [at_s for at_s in steps if at_s <= since_s]
    times = [max(before, default=since_s), *(at_s for at_s in steps if since_s < at_s < until_s), until_s]
    calm_s = 0.0
    for earlier, later in pairwise(times):
        if later - earlier <= STEP_MAX_S:
            calm_s += later - max(earlier, since_s)
    return calm_s / (until_s - since_s)
