"""Requests the stacks of a local process by a signal, fast enough to do it before a stop.

A worker's fault handler answers the signal without the interpreter's help, so it answers even while native code holds
the GIL. A real-time signal ends a process that does not catch it. So the signal goes only to a process that catches it,
according to the kernel, and that has the file for its answer open.

This module imports little: after a crash, it runs before the other workers are signalled.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from holdfast import procfs
from holdfast.own_files import open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STATE = "# state: "
"""The remark on a process in an unusual state: it is stopped, or has no Python stack at all. It comes before the
stacks, or replaces them.
"""

SIGNAL = signal.SIGRTMIN + 12
"""On this signal, a worker writes the stacks of all its threads to its file."""

READ_MAX_BYTES = 4 << 20
"""How much of an answer is read: a hundred threads of a hundred frames take one MiB."""

DESCENDANTS_MAX = 32
"""How many processes are searched for the Python program if the worker is, for example, a shell script."""

QUICK_STEP_S = 0.0002
"""The polling interval for a worker that writes its stacks before a stop. Writing takes about as long."""

USUAL_DESCRIPTORS = range(200, 204)
"""The usual descriptors of a worker's stacks file, unless its program had taken these numbers. They are checked first:
a program may have thousands.
"""

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "stuck in the kernel",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "I": "idle",
}
GONE = procfs.ENDED
"""The states of a process that has ended. A process that does not exist has the state "X"."""

STANDING = frozenset("TtD")
"""The states in which a process does not answer a signal."""

PAUSES = ("sys_pause", "sigsuspend")
"""The kernel functions in which a process waits for any signal."""

_CURRENT_THREAD = b"Current thread 0x"


class WorkerTarget:
    """A worker's process, and the file that its fault handler writes to."""

    __slots__ = ("pid", "stacks_path")

    def __init__(self, pid: int, stacks_path: str) -> None:
        self.pid = pid
        self.stacks_path = stacks_path


class Answer:
    """A process that was asked, and what it has written since. `pidfd` refers to the process."""

    __slots__ = ("_begin", "_path", "_whole", "pid", "pidfd")

    def __init__(self, pid: int, pidfd: int, path: str, begin: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._path = path
        self._begin = begin
        self._whole = b""

    @property
    def is_whole(self) -> bool:
        """Whether the process is known to have written everything."""
        return self._whole != b""

    def size(self) -> int:
        """How many bytes it has written since it was asked."""
        return max(0, _size(self._path) - self._begin)

    def look(self) -> bool:
        """Whether the answer is final: the handler has returned, or the process has ended."""
        has_begun = self.size() > 0
        status = procfs.status(self.pid)
        if has_begun and not _is_in_handler(status):
            found = self._read()
            # The text marks the thread that handled the signal. That is the main thread, whose status was read above.
            self._whole = found if _CURRENT_THREAD in found else b""
        return self.is_whole or not status.state or status.state in GONE

    def settle(self) -> None:
        """Stop waiting. The answer so far is whole if no thread of the process is still in the handler."""
        if self.size() and not self.is_whole:
            with suppress(OSError):
                threads = procfs.threads(self.pid)
                if not any(_is_in_handler(procfs.thread_status(self.pid, thread)) for thread in threads):
                    self._whole = self._read()

    def text(self) -> str:
        return (self._whole or self._read()).decode("utf-8", "backslashreplace")

    def _read(self) -> bytes:
        return _read(self._path, self._begin, READ_MAX_BYTES)

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def ask(target: WorkerTarget, *, spares_pauses: bool = False) -> Answer | None:
    """Send the signal to the process that will answer it; None if there is none. The caller closes the answer.

    The signal goes to the first process of a worker's family that has the handler. Its forked children have inherited
    the handler. If it cannot answer, they are not asked in its place: where the helpers of a stopped worker are says
    nothing about the worker.

    A signal ends a `pause()`. With `spares_pauses`, a process that waits there gets no signal, if the kernel shows it.
    """
    size = _size(target.stacks_path)
    if size < 0:
        return None
    for pid in _family(target.pid):
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        # The pidfd refers to the process that these checks examine; if the pid was reused, sending fails.
        has_handler = False
        with suppress(OSError):
            has_handler = _has_handler(pid, target.stacks_path)
            if has_handler and _can_answer(pid) and not (spares_pauses and _waits_for_signal(pid)):
                signal.pidfd_send_signal(pidfd, SIGNAL)
                return Answer(pid, pidfd, target.stacks_path, size)
        os.close(pidfd)
        if has_handler:
            break
    return None


def ask_quickly(
    workers: Mapping[int, WorkerTarget], limit_s: float, *, spares_pauses: bool = True
) -> dict[int, Answer]:
    """Ask all workers at once, and wait at most `limit_s` for those that can answer. Returns closed answers.

    By default a program that waits for a signal in `pause()` is not asked: it would continue before it is stopped.
    """
    deadline = time.monotonic() + limit_s
    asked: dict[int, Answer] = {}
    try:
        for rank, target in workers.items():
            answer = ask(target, spares_pauses=spares_pauses)
            if answer is not None:
                asked[rank] = answer
        waiting = list(asked.values())
        while waiting and time.monotonic() < deadline:
            time.sleep(QUICK_STEP_S)  # a file in memory sends no notification; the wait is short and happens once
            waiting = [answer for answer in waiting if not answer.look()]
        for answer in waiting:
            answer.settle()
    finally:
        for answer in asked.values():
            answer.close()
    return asked


def kernel_facts(pid: int) -> str:
    """One line about where a process is, from the kernel alone."""
    state = process_state(pid)
    place = procfs.kernel_function(pid)
    at = f", in the kernel at {place}" if place and place != "0" else ""
    return f"{STATES.get(state, state)}{at}"


def _waits_for_signal(pid: int) -> bool:
    return any(name in procfs.kernel_function(pid) for name in PAUSES)


def process_state(pid: int) -> str:
    """The letter of the process's state; "X" if it does not exist."""
    return procfs.state(pid) or "X"


def children_of(pid: int) -> list[int]:
    """The children of a process's main thread; none if the kernel does not show them."""
    try:
        return procfs.children(pid, pid)
    except OSError:
        return []


def _family(pid: int) -> Iterable[int]:
    """A process and its descendants, breadth first."""
    found = [pid]
    for member in found:
        yield member
        if len(found) < DESCENDANTS_MAX:
            found += children_of(member)


def _has_handler(pid: int, stacks_path: str) -> bool:
    """Whether a process catches the signal, and has the file for its answer open."""
    return _has_signal(procfs.status(pid), "SigCgt") and _holds(pid, stacks_path)


def _can_answer(pid: int) -> bool:
    return process_state(pid) not in STANDING | GONE


def _is_in_handler(status: procfs.Status) -> bool:
    """Whether the signal is pending for a thread, or blocked, as it is while its handler runs."""
    return any(_has_signal(status, name) for name in ("SigBlk", "ShdPnd", "SigPnd"))


def _has_signal(status: procfs.Status, name: str) -> bool:
    """Whether a signal set contains `SIGNAL`."""
    return bool(status.bits(name) >> (SIGNAL - 1) & 1)


def _holds(pid: int, path: str) -> bool:
    wanted = os.stat(path)
    if any(_is_file(procfs.descriptor(pid, fd), path, wanted) for fd in USUAL_DESCRIPTORS):
        return True
    return any(_is_file(procfs.descriptor(pid, fd), path, wanted) for fd in procfs.open_descriptors(pid))


def _is_file(link: str, path: str, wanted: os.stat_result) -> bool:
    try:
        # Compare the name first: the descriptor may be on a file system that hangs.
        return path.endswith(os.readlink(link).rpartition("/")[2]) and os.path.samestat(os.stat(link), wanted)
    except OSError:  # closed meanwhile
        return False


def _size(path: str) -> int:
    """The size of a file; -1 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _read(path: str, offset: int, limit: int) -> bytes:
    """The content of a file; empty if it cannot be read. A pipe in its place does not block."""
    try:
        fd = open_own(path)
    except OSError:
        return b""
    try:
        data = os.pread(fd, limit, offset)
        while data and len(data) < limit and (more := os.pread(fd, limit - len(data), offset + len(data))):
            data += more
    except OSError:  # a process that has ended meanwhile
        return b""
    finally:
        os.close(fd)
    return data
