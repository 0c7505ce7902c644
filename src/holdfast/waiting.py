"""Timeouts of waits."""

from __future__ import annotations

POLL_MAX_S = 86_400.0
"""The longest wait of one system call; longer waits are repeated. Any deadline is allowed, even infinity."""


def poll_ms(wait_s: float | None) -> int | None:
    """A timeout for `poll`, rounded up: a wait that ends just before its deadline would only be repeated.

    None and infinity wait for ever.
    """
    if wait_s is None or wait_s == float("inf"):
        return None
    return -int(-min(max(wait_s, 0.0), POLL_MAX_S) * 1000 // 1)
