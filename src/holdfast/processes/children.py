"""All children of this process, and how to signal them.

Only a parent can signal a process safely: until it has reaped the child, the pid cannot be reused.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

from holdfast import procfs
from holdfast.waiting import poll_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection


def end_children() -> None:
    """Kill and reap all children. The last resort of a keeper that has failed."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                with suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)
            os.wait()


def children() -> list[int]:
    me = os.getpid()
    try:
        pids = procfs.children(me, me)
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        pids = [pid for pid in procfs.processes() if _parent_of(pid) == me]
    return [pid for pid in pids if is_child(pid)]


def is_child(pid: int) -> bool:
    """Ask the kernel: /proc may show another pid namespace, where the same pid is another process."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _parent_of(pid: int) -> int | None:
    try:
        return procfs.stat(pid).parent
    except OSError:
        return None


def signal_group(leader: int, signum: int) -> None:
    """Signal a worker, which leads a group, and its group. SIGCONT lets a stopped process act on the signal."""
    for each in (signum, signal.SIGCONT):
        try:
            os.killpg(leader, each)
        except ProcessLookupError:
            os.kill(leader, each)  # forked, but not a group leader yet
        except PermissionError:
            pass  # the whole group changed its user; in the end `stuck` names it


def end_sessions(leaders: Collection[int], wait_s: float) -> tuple[int, ...]:
    """Kill all processes in the sessions that these processes began, and wait for their ends.

    Returns those that have not ended after `wait_s`: a process with much memory takes seconds to end, and one that is
    stuck in the kernel does not end at all.
    """
    for leader in leaders:  # the groups first: that needs no search
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    members = set(leaders) | _in_sessions(leaders)
    for pid in members - set(leaders):
        with suppress(OSError):  # it has ended, or is another user's
            os.kill(pid, signal.SIGKILL)
    return tuple(sorted(pid for pid in members if not _has_ended(pid, deadline)))


def _in_sessions(leaders: Collection[int]) -> set[int]:
    found: set[int] = set()
    if leaders and os.readlink("/proc/self") == str(os.getpid()):  # otherwise /proc shows another pid namespace
        for pid in procfs.processes():
            with suppress(OSError, IndexError):  # it has ended, or is another user's
                if procfs.stat(pid).session in leaders:
                    found.add(pid)
    return found


def _has_ended(pid: int, deadline: float) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # no descriptor is left: nobody can tell
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(poll_ms(max(0.0, deadline - time.monotonic()))))
    finally:
        os.close(fd)
