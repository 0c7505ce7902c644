"""The laws hold whatever happens, and whenever: hypothesis makes up stories, and makes short the one that breaks a law.

The laws (`simulated_laws`) are checked at every step: a generation is decided once, its ranks are 0 to N-1, it has no
fewer than MIN and no more than MAX nodes, workers of two generations never live at the same time, the budget is kept,
and all who can go on do.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_storms import FAULTS_S, run

FAULTS = (
    *("fail", "crash", "crash_leader", "restart", "drain", "pause", "pause_leader"),
    *("cut_one", "cut_up", "cut_down", "cut_leader", "reset", "outage", "pause_store"),
)

stories = st.lists(st.tuples(st.floats(0.0, FAULTS_S), st.sampled_from(FAULTS)), max_size=12)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), faults=stories)
def test_no_story_breaks_a_law(seed, faults):
    run("calm", seed, faults=faults)
