"""Until when a set may live, as the agent writes it and the keeper reads it."""

from __future__ import annotations

import os
import time

import pytest

from holdfast.processes.fence import read_fence, write_fence


@pytest.fixture
def shared():
    fd = os.memfd_create("shared")
    yield fd
    os.close(fd)


def test_the_newest_fence_is_read(shared):
    assert read_fence(shared) is None
    for at in (1234.5, 1e6, 7.25):
        write_fence(shared, at)
        assert read_fence(shared) == at


@pytest.mark.parametrize(("at", "is_past"), [(float("inf"), False), (1e300, False), (0.0, True), (-5.0, True)])
def test_any_time_can_be_a_fence(shared, at, is_past):
    write_fence(shared, at)
    assert (read_fence(shared) < time.monotonic()) is is_past


def test_of_a_fence_that_was_never_written_to_its_end_the_earlier_half_counts(shared):
    write_fence(shared, 20.0)
    os.pwrite(shared, int(10e9).to_bytes(8, "little"), 0)
    assert read_fence(shared) == 10.0
