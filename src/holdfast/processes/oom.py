"""Whether the kernel's out-of-memory killer sent a process SIGKILL.

The kernel leaves three traces of such a kill. Its log names the process. The memory cgroup of the process counts the
kill, and in cgroup version 2 so do all cgroups above it. The machine as a whole counts it too. The counters rise before
the signal is sent; the log may be written a moment after it.
"""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOG_RECORD_MAX_BYTES = 8192
"""The kernel's own limit of a record; it refuses a smaller buffer."""

LOG_MAX_RECORDS = 100_000
"""How many records of the kernel's log are read at once, if it grows faster than it is read."""

LIMIT_MAX_BYTES = 1 << 60
"""A larger limit means that the cgroup has none: version 1 writes it that way."""

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's log always has the process ids of this namespace. The number never changes."""

KILLED_BY_KERNEL = "killed by the kernel's out-of-memory killer"

_MIB = 1 << 20
_FIRST_FOREIGN_PRIORITY = 8
_MOUNT_ROOT, _MOUNT_POINT = 3, 4
_MOUNTINFO_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


class MemoryHierarchy:
    """Where the memory cgroups are mounted: the tree below `root`, at `point`."""

    __slots__ = ("is_v2", "point", "root")

    def __init__(self, point: str, root: str, *, is_v2: bool) -> None:
        self.point = point
        self.root = root
        self.is_v2 = is_v2

    def directory(self, path: str) -> str:
        """The directory of a cgroup. One that is not visible from here counts as the topmost visible one."""
        root = self.root.rstrip("/")
        if path.startswith("/..") or not (path == root or path.startswith(f"{root}/")):
            return self.point
        return f"{self.point}{path[len(root) :]}".rstrip("/") or "/"

    def upwards(self, directory: str) -> Iterator[str]:
        """The directories of a cgroup and of all its visible ancestors."""
        while directory.startswith(self.point):
            yield directory
            directory = os.path.dirname(directory) if directory != "/" else ""

    def kills_file(self, directory: str) -> str:
        return os.path.join(directory, "memory.events" if self.is_v2 else "memory.oom_control")

    def limit_file(self, directory: str) -> str:
        return os.path.join(directory, "memory.max" if self.is_v2 else "memory.limit_in_bytes")


def memory_hierarchy(mountinfo: str) -> MemoryHierarchy | None:
    """The mount of the memory cgroups, from /proc/PID/mountinfo. If both versions are mounted, version 1 has the memory
    controller if it lists it.
    """
    unified = None
    for line in mountinfo.splitlines():
        mount, _, filesystem = line.partition(" - ")
        fields, kind = mount.split(), filesystem.split()
        if len(fields) <= _MOUNT_POINT or not kind:
            continue
        root, point = _unescaped(fields[_MOUNT_ROOT]), _unescaped(fields[_MOUNT_POINT])
        if kind[0] == "cgroup" and "memory" in kind[-1].split(","):
            return MemoryHierarchy(point, root, is_v2=False)
        if kind[0] == "cgroup2" and unified is None:
            unified = MemoryHierarchy(point, root, is_v2=True)
    return unified


def memory_cgroup(proc_cgroup: str, *, is_v2: bool) -> str:
    """The path of a process's memory cgroup, from its /proc/PID/cgroup; "" if it has none there."""
    for line in proc_cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) if is_v2 else ("memory" in controllers.split(",")):
            return path
    return ""


def counted_kills(text: str) -> int | None:
    """The kills that memory.oom_control, memory.events or /proc/vmstat count; None if the text has no counter."""
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdecimal():
            return int(count)
    return None


def limit_bytes(text: str) -> int | None:
    """The limit in memory.max or memory.limit_in_bytes; None if there is none."""
    text = text.strip()
    return int(text) if text.isdecimal() and int(text) < LIMIT_MAX_BYTES else None


def logged_kill(record: str) -> tuple[int, str] | None:
    """The process that a record of the kernel's log reports as killed, and the reason: "cgroup", "machine", or "" if an
    old kernel does not say. None for any other record, including those that programs write.
    """
    prefix, _, text = record.partition(";")
    priority = prefix.partition(",")[0]
    before, found, after = text.partition("Killed process ")
    pid = after.partition(" ")[0]
    if not (found and pid.isdecimal() and priority.isdecimal() and int(priority) < _FIRST_FOREIGN_PRIORITY):
        return None
    reason = before.lower()
    if reason.startswith("memory cgroup out of memory"):
        return int(pid), "cgroup"
    return int(pid), "machine" if reason.startswith("out of memory") else ""


class KernelLog:
    """The processes that the kernel's log reports as killed since this object was created. Empty if the log cannot be
    read, or if its process ids are not those of this process's namespace.
    """

    def __init__(self, proc: str = "/proc", device: str = "/dev/kmsg") -> None:
        self.killed: dict[int, str] = {}
        self._fd = -1
        with suppress(OSError):
            if os.readlink(f"{proc}/self/ns/pid") == INITIAL_PID_NAMESPACE:
                self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(self._fd, 0, os.SEEK_END)

    def update(self) -> None:
        """Read the new records."""
        for _ in range(LOG_MAX_RECORDS if self._fd >= 0 else 0):
            try:
                data = os.read(self._fd, LOG_RECORD_MAX_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read; continue with the next
                continue
            except OSError:  # no more records
                return
            if not data:
                return
            for line in data.decode("utf-8", "replace").splitlines():
                kill = logged_kill(line)
                if kill is not None:
                    self.killed[kill[0]] = kill[1]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OomWatch:
    """The kernel's counters at the start of a set of processes, so that a kill of one of them can be recognised.

    A process that the log names was killed for memory. So was one whose cgroup counted a kill that neither the log nor
    another process of the set explains. The machine's counter is used only if no cgroup has one.
    """

    def __init__(self, pids: Iterable[int], proc: str = "/proc", kernel_log: str = "/dev/kmsg") -> None:
        self._log = KernelLog(proc, kernel_log)
        self._vmstat = f"{proc}/vmstat"
        self._hierarchy = memory_hierarchy(_read(f"{proc}/self/mountinfo"))
        self._directories: dict[int, str] = {}
        self._before: dict[str, int] = {}
        """The counts at the start, by the counter's file."""
        self._guessed: dict[str, int] = {}
        """By the counter's file, how many processes of the set it explains that the log does not name."""
        self._verdicts: dict[int, str] = {}

        if self._hierarchy is not None:
            own = _read(f"{proc}/self/cgroup")
            texts = {pid: _read(f"{proc}/{pid}/cgroup") or own for pid in pids}
            for text in set(texts.values()):
                directory = self._hierarchy.directory(memory_cgroup(text, is_v2=self._hierarchy.is_v2))
                self._directories.update((pid, directory) for pid in texts if texts[pid] == text)
                self._look(self._counters(directory))
        self._look([self._vmstat])

    def verdict(self, pid: int) -> str:
        """Why the out-of-memory killer must have sent SIGKILL to this process of the set, as a sentence; "" if it did
        not. Repeated calls return the same.
        """
        if pid not in self._verdicts:
            self._verdicts[pid] = self._judge(pid)
        return self._verdicts[pid]

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _judge(self, pid: int) -> str:
        self._log.update()
        directory = self._directories.get(pid, "")
        reason = self._log.killed.get(pid)
        if reason == "machine":
            return f"{KILLED_BY_KERNEL}: the machine was out of memory"
        if reason == "cgroup":
            limit = self._limit(directory)
            return f"{KILLED_BY_KERNEL}: its memory cgroup was at its limit" + (f" of {limit}" if limit else "")
        if reason is not None:
            return f"{KILLED_BY_KERNEL}, according to the kernel's log"
        return self._guess(directory)

    def _guess(self, directory: str) -> str:
        """The verdict without the log. The nearest counter that still exists decides."""
        counters = [path for path in [*self._counters(directory), self._vmstat] if path in self._before]
        for path in counters:
            now = counted_kills(_read(path))
            if now is None:  # the cgroup is gone
                continue
            if now - self._before[path] - len(self._log.killed) - self._guessed.get(path, 0) <= 0:
                return ""
            for each in counters:
                self._guessed[each] = self._guessed.get(each, 0) + 1
            if path == self._vmstat:
                return f"{KILLED_BY_KERNEL}: the machine counted such a kill during its run"
            limit = self._limit(directory)
            counted = f"{KILLED_BY_KERNEL}: its memory cgroup counted such a kill"
            return f"{counted}, and has a limit of {limit}" if limit else counted
        return ""

    def _counters(self, directory: str) -> list[str]:
        """The files that count the kills in a cgroup, the nearest first. In version 1, only its own file does."""
        if self._hierarchy is None or not directory:
            return []
        above = [self._hierarchy.kills_file(each) for each in self._hierarchy.upwards(directory)]
        return above if self._hierarchy.is_v2 else above[:1]

    def _look(self, paths: list[str]) -> None:
        for path in paths:
            count = None if path in self._before else counted_kills(_read(path))
            if count is not None:
                self._before[path] = count

    def _limit(self, directory: str) -> str:
        """The smallest limit that applied to a cgroup; "" if there is none."""
        if self._hierarchy is None or not directory:
            return ""
        above = self._hierarchy.upwards(directory)
        limits = [limit_bytes(_read(self._hierarchy.limit_file(each))) for each in above]
        smallest = min((limit for limit in limits if limit is not None), default=None)
        return "" if smallest is None else f"{smallest / _MIB:,.0f} MiB"


def _read(path: str) -> str:
    """The whole content of a kernel file; "" if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _unescaped(path: str) -> str:
    for escape, character in _MOUNTINFO_ESCAPES:
        path = path.replace(escape, character)
    return path
