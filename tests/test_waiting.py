"""Timeouts for `poll`, from seconds."""

from __future__ import annotations

import math
import select

import pytest

from holdfast.waiting import POLL_MAX_S, poll_ms


@pytest.mark.parametrize(
    ("wait_s", "timeout_ms"),
    [
        (None, None),
        (math.inf, None),
        (1e30, 86_400_000),
        (POLL_MAX_S, 86_400_000),
        (1.0, 1000),
        (0.0011, 2),
        (0.0001, 1),
        (1e-300, 1),
        (0.0, 0),
        (-1e30, 0),
        (-math.inf, 0),
    ],
)
def test_a_wait_never_ends_before_its_deadline(wait_s, timeout_ms):
    assert poll_ms(wait_s) == timeout_ms
    assert isinstance(poll_ms(wait_s), int | None)


def test_the_longest_wait_is_one_that_poll_takes():
    poll = select.poll()
    with open("/dev/zero", "rb") as ready:
        poll.register(ready, select.POLLIN)
        assert poll.poll(poll_ms(1e30))
