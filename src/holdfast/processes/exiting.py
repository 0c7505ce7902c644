"""Whether a process has begun to exit."""

from __future__ import annotations

from holdfast import procfs

EXITING = 0x4
DUMPS_CORE = 0x200
SIGNALED = 0x400
"""Flags of a thread in /proc/PID/task/TID/stat: it exits, writes a core file, was killed."""


def is_ending(pid: int) -> bool:
    """Whether all threads of a process have begun to exit, so that a later signal cannot be the cause.

    The exit may take seconds, in which the kernel frees memory and devices. Connections may be closed among the first,
    so that peers fail before the process has ended.
    """
    try:
        if not _is_thread_ending(pid, pid):
            return False  # nearly always: siblings of a failed worker still run
        return all(_is_thread_ending(pid, thread) for thread in procfs.threads(pid))
    except OSError:
        return False


def _is_thread_ending(pid: int, thread: int | str) -> bool:
    try:
        flags = procfs.thread_stat(pid, thread).flags
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended since
    return bool(flags & (EXITING | DUMPS_CORE | SIGNALED))
