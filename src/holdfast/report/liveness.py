"""Whether an agent without a recorded end still runs."""

from __future__ import annotations

import os
import time

from holdfast import procfs
from holdfast.report.timeline import Presence

SLACK_S = 10.0
"""How much younger than its first event a process may seem to be: the clock may have been set meanwhile."""


def presence_of(host: str, pid: int, began_at: float) -> Presence:
    """What this machine knows about an agent; nothing if the agent ran on another machine.

    A process that began after the agent's first event is another one, with a reused process id.
    """
    if pid <= 0 or host != os.uname().nodename:
        return Presence()
    age_s = _age_s(pid)
    if age_s is None or time.time() - age_s > began_at + SLACK_S:
        return Presence(is_alive=False)
    return Presence(is_alive=True, monotonic=time.monotonic())


def _age_s(pid: int) -> float | None:
    """The age of a process; None if it does not exist, or is a zombie."""
    try:
        stat = procfs.stat(pid)
    except OSError:
        return None
    return None if stat.state in procfs.ENDED else time.clock_gettime(time.CLOCK_BOOTTIME) - stat.began_s
