"""What the kernel says about processes in /proc.

All functions take a process id; `SELF` is this process. They raise OSError if the process does not exist, unless they
say otherwise: FileNotFoundError if it was gone before, ProcessLookupError if it ended during the read.
"""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

SELF = "self"
"""The process that reads."""

ENDED = frozenset("ZXx")
"""The states of a process that has ended."""

STAT_MAX_BYTES = 4096
"""How much of a stat file is read: the kernel writes one line of some three hundred bytes."""

STATUS_MAX_BYTES = 64 * 1024
"""How much of any other file is read. They have one or two KiB."""

_STATE, _PARENT, _SESSION, _FLAGS, _CPU_TIMES, _BEGAN, _ARGUMENTS = 0, 1, 3, 6, 11, 19, 45
"""Indices in a stat line, counted from the field after the program's name."""

_CPU_FIELDS = 4
_STDERR = 2


class Stat:
    """The line in /proc/PID/stat, or in that of a thread."""

    __slots__ = ("_fields",)

    def __init__(self, line: bytes) -> None:
        # The name may contain anything, even ')'. The fields after the last ')' are regular.
        self._fields = line.rpartition(b")")[2].split()

    @property
    def state(self) -> str:
        """The letter of the state."""
        return self._fields[_STATE].decode("ascii")

    @property
    def parent(self) -> int:
        return int(self._fields[_PARENT])

    @property
    def session(self) -> int:
        """The session of the process: the id of the process that began it."""
        return int(self._fields[_SESSION])

    @property
    def flags(self) -> int:
        """The kernel's PF_ flags of the thread."""
        return int(self._fields[_FLAGS])

    @property
    def cpu_s(self) -> float:
        """The CPU time of the process, with that of the children it has waited for."""
        ticks = sum(map(int, self._fields[_CPU_TIMES : _CPU_TIMES + _CPU_FIELDS]))
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def began_s(self) -> float:
        """When the process started, on the clock of this boot (CLOCK_BOOTTIME)."""
        return int(self._fields[_BEGAN]) / os.sysconf("SC_CLK_TCK")

    @property
    def arguments(self) -> range:
        """The memory addresses of the command line that ps shows. Empty if the reader may not trace the process."""
        return range(int(self._fields[_ARGUMENTS]), int(self._fields[_ARGUMENTS + 1]))


def stat(pid: int | str) -> Stat:
    """The state, parent, times and so on of a process."""
    return Stat(_read(f"/proc/{pid}/stat", STAT_MAX_BYTES))


def thread_stat(pid: int | str, thread: int | str) -> Stat:
    """The same for one thread."""
    return Stat(_read(f"/proc/{pid}/task/{thread}/stat", STAT_MAX_BYTES))


def state(pid: int | str) -> str:
    """The letter of a process's state; "" if there is no such process."""
    try:
        return stat(pid).state
    except OSError:
        return ""


class Status:
    """The named values in /proc/PID/status, or in that of a thread."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def value(self, name: str) -> str:
        """A value; "" if there is none. The process's name comes first, with its line breaks escaped."""
        found = self._text.partition(b"\n%s:\t" % name.encode("ascii"))[2].partition(b"\n")[0]
        return found.decode("ascii", "replace")

    def bits(self, name: str) -> int:
        """A value that is a set of bits; 0 if there is none."""
        return int(self.value(name) or "0", 16)

    @property
    def state(self) -> str:
        """The letter of the state; "" if there is none."""
        return self.value("State")[:1]


def status(pid: int | str) -> Status:
    """The signals, capabilities and so on of a process. Without values if the process does not exist."""
    return _status(f"/proc/{pid}/status")


def thread_status(pid: int | str, thread: int | str) -> Status:
    """The same for one thread."""
    return _status(f"/proc/{pid}/task/{thread}/status")


def kernel_function(pid: int | str) -> str:
    """The kernel function that a process sleeps in; "0" or "" if it does not sleep, or the kernel does not show it."""
    try:
        return _read(f"/proc/{pid}/wchan", STATUS_MAX_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""


def written_bytes(pid: int | str) -> int:
    """How much a process has written, to any file. 0 if the kernel does not count it."""
    for line in _read(f"/proc/{pid}/io", STATUS_MAX_BYTES).splitlines():
        name, _, count = line.partition(b":")
        if name == b"wchar":
            return int(count)
    return 0


def threads(pid: int | str) -> list[str]:
    """The ids of a process's threads."""
    return os.listdir(f"/proc/{pid}/task")


def has_threads() -> bool:
    """Whether this process has a second thread of any kind, not only Python's."""
    return len(threads(SELF)) > 1


def children(pid: int | str, thread: int | str) -> list[int]:
    """The processes that a thread has started or adopted and that have not been waited for.

    Raises:
        FileNotFoundError: the kernel does not show children, or the thread has ended.
    """
    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # of any length
        return [int(word) for word in file.read().split()]


def processes() -> list[int]:
    """All processes that this one may see."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def owner(pid: int | str) -> int:
    """The user of a process."""
    return os.stat(f"/proc/{pid}").st_uid


def descriptor(pid: int | str, fd: int | str) -> str:
    """The path of a link to what a descriptor refers to."""
    return f"/proc/{pid}/fd/{fd}"


def open_descriptors(pid: int | str) -> list[int]:
    """The open descriptors of a process. For this process, they include the one that the listing itself uses."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]


def close_descriptors(keep: Collection[int]) -> None:
    """Close all descriptors of this process but the standard ones and those to `keep`."""
    for fd in open_descriptors(SELF):
        if fd > _STDERR and fd not in keep:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(fd)


def name() -> str:
    """The name that ps shows for this process; "" if it is not known."""
    try:
        return os.fsdecode(_read("/proc/self/comm", STAT_MAX_BYTES)).strip()
    except OSError:
        return ""


def rename(new: str) -> None:
    """Set the name that ps shows for this process. Best effort."""
    with suppress(OSError):
        fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, os.fsencode(new))
        finally:
            os.close(fd)


def _status(path: str) -> Status:
    try:
        return Status(_read(path, STATUS_MAX_BYTES))
    except OSError:
        return Status(b"")


def _read(path: str, max_bytes: int) -> bytes:
    """The beginning of a file, in one system call: so the kernel writes all of it at the same time."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, max_bytes)
    finally:
        os.close(fd)
