"""The stacks of the workers of this machine: asked for by a signal, and taken from outside where none come.

A worker's fault handler answers the signal without the interpreter's help, so it also answers while native code holds
the interpreter's lock. A real-time signal ends a process that does not catch it, so only a process is asked of which
the kernel says that it does, and that holds the file to which its answer goes.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

from msgspec import Struct

from holdfast.errors.text import clipped
from holdfast.stacks.spy import GONE, STANDING, process_state, spy
from holdfast.stacks.wire import RankStacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SIGNAL = signal.SIGRTMIN + 12
"""Upon this, a worker writes the stacks of all its threads to its file."""

COLLECT_MAX_S = 15.0
"""How long it takes at most to have the stacks of this machine's workers."""

ANSWER_MAX_S = 3.0
"""How long a worker has to answer the signal. It takes a few milliseconds on a machine that is not busy."""

QUIET_S = 0.2
"""A worker that has written nothing for this long has written all."""

STEP_S = 0.02
"""How often the files are looked at. That is not an event to wait for; but it is short, and happens once in a hang."""

STACKS_MAX_CHARS = 64 * 1024
"""How much is kept for a rank: the beginning, and the end with the main thread."""

READ_MAX_BYTES = 4 << 20
"""How much of an answer is read: a hundred threads of a hundred frames are one MiB."""

DESCENDANTS_MAX = 32
"""Among how many processes the Python program is looked for if a worker is none itself, but a shell script, say."""


class WorkerTarget(Struct, frozen=True):
    """A worker's process, and the file that its fault handler writes to."""

    pid: int
    stacks_path: str


def collect(workers: Mapping[int, WorkerTarget], timeout_s: float = COLLECT_MAX_S) -> dict[int, str]:
    """The stacks of every worker that runs, by the keys of `workers`, in at most about `timeout_s`.

    Each text is one for `holdfast.stacks.parse`. Workers that have ended are left out.
    """
    begin = time.monotonic()
    asked: dict[int, _Answer] = {}
    try:
        for rank, target in workers.items():
            answer = _ask(target)
            if answer is not None:
                asked[rank] = answer
        _await(asked.values(), begin + min(ANSWER_MAX_S, timeout_s / 2))
        texts = {rank: answer.text() for rank, answer in asked.items()}
    finally:
        for answer in asked.values():
            answer.close()
    for rank, target in workers.items():
        if not texts.get(rank):
            texts[rank] = spy(target.pid, begin + timeout_s - time.monotonic())
    return {rank: clipped(texts[rank], STACKS_MAX_CHARS) for rank in workers if texts[rank]}


def ranks_here(workers: Mapping[int, WorkerTarget], timeout_s: float = COLLECT_MAX_S) -> dict[int, RankStacks]:
    """As `collect`, for a dump: each with its host and process."""
    host = os.uname().nodename
    texts = collect(workers, timeout_s)
    return {rank: RankStacks(host, workers[rank].pid, text) for rank, text in texts.items()}


class _Answer:
    """A process that was asked, and what it has written since."""

    __slots__ = ("_begin", "_changed_at", "_path", "_size", "is_over", "pidfd")

    def __init__(self, pidfd: int, path: str, size: int) -> None:
        self.pidfd = pidfd
        self._path = path
        self._begin = self._size = size
        self._changed_at = 0.0
        self.is_over = False

    def look(self, now: float) -> None:
        size = _size(self._path)
        if size != self._size:
            self._size, self._changed_at = size, now
        elif size > self._begin and now - self._changed_at >= QUIET_S:
            self.is_over = self.text().endswith("\n")  # or it is in the middle of a line, on a busy machine

    def text(self) -> str:
        with suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._begin)
            return file.read(READ_MAX_BYTES).decode("utf-8", "backslashreplace")
        return ""

    def close(self) -> None:
        os.close(self.pidfd)


def _ask(target: WorkerTarget) -> _Answer | None:
    """Send the signal to the process that will answer it; None if there is none."""
    size = _size(target.stacks_path)
    if size < 0:
        return None
    for pid in _family(target.pid):
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        # All of this is about the process that the descriptor stands for, or sending fails.
        with suppress(OSError):
            if _answers(pid, target.stacks_path):
                signal.pidfd_send_signal(pidfd, SIGNAL)
                return _Answer(pidfd, target.stacks_path, size)
        os.close(pidfd)
    return None


def _await(answers: Iterable[_Answer], deadline: float) -> None:
    waiting = {answer.pidfd: answer for answer in answers}
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting and (now := time.monotonic()) < deadline:
        for fd, _ in poll.poll(STEP_S * 1000):
            waiting[fd].is_over = True  # it has ended; nothing more will come
        for fd, answer in list(waiting.items()):
            answer.look(now)
            if answer.is_over:
                del waiting[fd]
                poll.unregister(fd)


def _family(pid: int) -> Iterable[int]:
    """A process and its descendants, its children first."""
    found = [pid]
    for member in found:
        yield member
        if len(found) < DESCENDANTS_MAX:
            found += children_of(member)


def children_of(pid: int) -> list[int]:
    """The children of a process's main thread; none where the kernel does not tell."""
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]
    return []


def _answers(pid: int, stacks_path: str) -> bool:
    """Whether a process catches the signal, and holds the file to which it then writes."""
    if process_state(pid) in STANDING | GONE:
        return False
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        caught = next((int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")), 0)
    return bool(caught >> (SIGNAL - 1) & 1) and _holds(pid, stacks_path)


def _holds(pid: int, path: str) -> bool:
    wanted = os.stat(path)
    name = os.path.basename(path)
    directory = f"/proc/{pid}/fd"
    for fd in os.listdir(directory):
        with suppress(OSError):  # closed since
            link = f"{directory}/{fd}"
            if os.path.basename(os.readlink(link)) == name and os.path.samestat(os.stat(link), wanted):
                return True
    return False


def _size(path: str) -> int:
    """The size of a file; -1 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
