"""Workers that are stuck in the kernel: found, told, and not worked beside."""

from __future__ import annotations

import pytest

from holdfast.agent.uninterruptible import UninterruptibleWatch, refuse_beside
from holdfast.errors.tree import InfrastructureError


def test_a_process_that_was_stuck_at_every_look_is_found():
    states = {7: "D", 8: "D"}
    watch = UninterruptibleWatch(10.0, states.get)
    assert watch.look([7, 8], 0.0) is None
    states[8] = "S"
    assert watch.look([7, 8], 5.0) is None
    states[8] = "D"
    assert watch.look([7, 8], 10.0) == 7
    assert watch.look([8], 14.0) is None


def test_the_log_says_which_process_is_stuck(caplog):
    watch = UninterruptibleWatch(0.0, {7: "D"}.get)
    assert not watch.has_found([8])
    assert caplog.text == ""
    assert watch.has_found([8, 7])
    assert "PID 7 has been stuck in the kernel for 0.0 s" in caplog.text


def test_nothing_runs_beside_a_process_that_survives_sigkill():
    refuse_beside(())
    with pytest.raises(InfrastructureError, match=r"did not end PID 7, 8, which is stuck"):
        refuse_beside((7, 8))
