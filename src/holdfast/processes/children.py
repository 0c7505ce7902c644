"""All children of this process, and how to signal them.

Only a parent can signal a process safely: until it has reaped the child, the pid cannot be reused.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from holdfast import procfs

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


def kill_sessions(leaders: Collection[int]) -> None:
    """Kill all processes in the sessions that these processes began, whatever group they are in."""
    for leader in leaders:  # the groups first: that needs no search
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
    if not leaders or os.readlink("/proc/self") != str(os.getpid()):  # it may show another pid namespace
        return
    for pid in procfs.processes():
        with suppress(OSError, IndexError):  # it has ended, or is another user's
            if procfs.stat(pid).session in leaders:
                os.kill(pid, signal.SIGKILL)
