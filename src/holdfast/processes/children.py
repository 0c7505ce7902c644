"""The children of this process, whoever they are, and how they are signalled.

Only a parent can signal a process safely: as long as it has not reaped it, the number is nobody else's.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def end_children() -> None:
    """The last resort of a keeper that has failed."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                with suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)
            os.wait()


def children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            pids = [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent_of(pid) == me]
    return [pid for pid in pids if is_child(pid)]


def is_child(pid: int) -> bool:
    """Asked of the kernel: /proc may be that of another pid namespace, where the numbers are other processes'."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold anything, a ')' included; what follows the last one is regular.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def signal_group(leader: int, signum: int) -> None:
    """To a worker, which leads a group, and to the group. A stopped process acts on a signal once it is continued."""
    for each in (signum, signal.SIGCONT):
        try:
            os.killpg(leader, each)
        except ProcessLookupError:
            os.kill(leader, each)  # forked, and not yet a leader
        except PermissionError:
            pass  # all of the group changed their user; in the end `stuck` names it
