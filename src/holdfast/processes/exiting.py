"""Processes that have begun to end."""

from __future__ import annotations

import os

EXITING = 0x4
DUMPS_CORE = 0x200
SIGNALED = 0x400
"""Flags of a thread, as the kernel has them in /proc/PID/task/TID/stat: it exits, writes a core file, was killed."""

_FLAGS_FIELD = 6
"""Where the flags stand, counted from the field behind the name of the program."""

STAT_MAX_BYTES = 4096
"""What the kernel says of a thread is a line of some three hundred bytes."""


def is_ending(pid: int) -> bool:
    """Whether all of a process's threads have begun to end, so that no signal from now on is the reason.

    Between that and its exit can be seconds, in which the kernel takes back memory and devices. Its connections may be
    among the first to go, so that its peers fail before it has ended.
    """
    directory = f"/proc/{pid}/task"
    try:
        if not _is_ending(f"{directory}/{pid}/stat"):
            return False  # as nearly always; siblings of a worker that failed are waiting for their signal
        return all(_is_ending(f"{directory}/{thread}/stat") for thread in os.listdir(directory))
    except OSError:
        return False


def _is_ending(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return True  # a thread that has ended since
    try:
        fields = os.read(fd, STAT_MAX_BYTES).rpartition(b")")[2].split()
    except ProcessLookupError:
        return True  # likewise
    finally:
        os.close(fd)
    return bool(int(fields[_FLAGS_FIELD]) & (EXITING | DUMPS_CORE | SIGNALED))
