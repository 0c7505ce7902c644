"""Whether a process has begun to exit."""

from __future__ import annotations

import os

EXITING = 0x4
DUMPS_CORE = 0x200
SIGNALED = 0x400
"""Flags of a thread in /proc/PID/task/TID/stat: it exits, writes a core file, was killed."""

_FLAGS_FIELD = 6
"""The index of the flags, counted from the field after the program's name."""

STAT_MAX_BYTES = 4096
"""How much of a thread's stat is read: the kernel writes one line of some three hundred bytes."""


def is_ending(pid: int) -> bool:
    """Whether all threads of a process have begun to exit, so that a later signal cannot be the cause.

    The exit may take seconds, in which the kernel frees memory and devices. Connections may be closed among the first,
    so that peers fail before the process has ended.
    """
    directory = f"/proc/{pid}/task"
    try:
        if not _is_ending(f"{directory}/{pid}/stat"):
            return False  # nearly always: siblings of a failed worker still run
        return all(_is_ending(f"{directory}/{thread}/stat") for thread in os.listdir(directory))
    except OSError:
        return False


def _is_ending(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended since
    try:
        fields = os.read(fd, STAT_MAX_BYTES).rpartition(b")")[2].split()
    except ProcessLookupError:
        return True  # likewise
    finally:
        os.close(fd)
    return bool(int(fields[_FLAGS_FIELD]) & (EXITING | DUMPS_CORE | SIGNALED))
