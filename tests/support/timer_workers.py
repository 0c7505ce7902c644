"""Functions of workers that set timers on themselves through a queue; a spawned process imports them from here."""

from __future__ import annotations

import signal
import time

from signpost import tell


def miss(mp_queue, after_s):
    """Set a timer and let it expire."""
    from holdfast.watchdog import LocalTimerClient, configure, expires

    configure(LocalTimerClient(mp_queue))
    with expires(after=after_s, scope="missed"):
        while True:
            signal.pause()


def keep(mp_queue, post):
    """Set timers and release each in time, then stay."""
    from holdfast.watchdog import LocalTimerClient, expires

    client = LocalTimerClient(mp_queue)
    for number in range(20):
        with expires(after=0.0 if number == 0 else 600, scope=f"kept {number}", client=client):
            pass
    mp_queue.close()
    mp_queue.join_thread()
    tell(post, "kept")
    while True:
        signal.pause()


def late(mp_queue):
    """Set a timer whose time has passed."""
    from holdfast.watchdog import LocalTimerClient

    LocalTimerClient(mp_queue).acquire("late", time.time() - 60)
    while True:
        signal.pause()
