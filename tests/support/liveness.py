"""Which processes are alive, asked of the kernel."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any

DEADLINE_S = 60.0

LEAVING_MAX_S = 1.0
"""How long a thread takes at most, but on a machine with too much to do, from its last line to its end."""

POLLED = frozenset(("anon_inode:[eventpoll]", "anon_inode:[eventfd]"))
"""The descriptors of a library's own thread."""


def exists(pid: int) -> bool:
    """Whether there is a process, a zombie included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pids: list[int]) -> list[int]:
    """Wait for the end of processes that are not our children; returns those that did not end in time."""
    deadline = time.monotonic() + DEADLINE_S
    alive = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        readable, _, _ = select.select([fd], [], [], max(0, deadline - time.monotonic()))
        os.close(fd)
        if not readable:
            alive.append(pid)
    return alive


def status(pid: int, field: str) -> str:
    """A line of /proc/PID/status."""
    with open(f"/proc/{pid}/status") as file:
        return next(line.partition(":")[2].strip() for line in file if line.startswith(field + ":"))


def children() -> set[int]:
    """The children of this process, zombies included."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                found |= {int(pid) for pid in file.read().split()}
        except (FileNotFoundError, ProcessLookupError):
            # The thread ended after it was listed; its children are another thread's now, maybe one already read.
            return children()
    return found


def footprint() -> dict[str, object]:
    """What a process holds of the system: to be the same after as before."""
    return {
        "descriptors": {fd: link for fd in os.listdir("/proc/self/fd") if (link := _link(fd)) is not None},
        "threads": len(os.listdir("/proc/self/task")),
        "children": children(),
    }


def quiet_footprint() -> dict[str, object]:
    """After the threads that ended in Python have left the kernel, too, or another test's would make up for one of
    ours. Those of libraries, such as torch's, are there for good.
    """
    deadline = time.monotonic() + LEAVING_MAX_S
    while len(os.listdir("/proc/self/task")) > threading.active_count() and time.monotonic() < deadline:
        time.sleep(0.001)
    return footprint()


def _link(fd: str) -> str | None:
    """What a descriptor is; None where it was closed after it was listed, as that of the listing itself."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return None


def is_as(now: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether nothing came, and nothing went but with threads that have ended since: those of a library, such as
    gRPC's, take what they poll with them.
    """
    held, before = now["descriptors"], expected["descriptors"]
    gone = [link for fd, link in before.items() if fd not in held]
    ended = expected["threads"] - now["threads"]
    return (
        now["children"] == expected["children"]
        and all(before.get(fd) == link for fd, link in held.items())
        and ended >= 0
        and (not gone or (ended > 0 and POLLED.issuperset(gone)))
    )


def settle(expected: dict[str, object]) -> None:
    """Fail unless the footprint is, or becomes, the expected one: a thread that was joined may still be on its way
    out of the kernel. One that somebody else had left, such as the reader of a server's output, may have ended since.
    """
    for _ in range(1000):
        if is_as(footprint(), expected):
            return
        time.sleep(0.001)
    now = footprint()
    assert is_as(now, expected), {name: (expected[name], now[name]) for name in now if now[name] != expected[name]}
