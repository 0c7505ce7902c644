"""The pages that an agent shares with its workers: their paths, and what the agent reads and writes there.

The agent uses `pread` and `pwrite`. It maps no page: a worker can shrink the file at any moment, and the next access to
the mapping would end the agent by SIGBUS.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from holdfast.files import empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY = "/dev/shm"  # noqa: S108 - the directory is private and its name random
"""A directory in memory: its files are never written to disk. If it cannot be used, a temporary directory is."""


PREFIX = "holdfast-pages-"

_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe, or a file that a worker has leased, in place of a page must not block the agent."""


def read_page(path: str) -> memoryview | None:
    """The numbers of the page at `path` at this moment; None if there is no page that we can read.

    The worker may not have created it, or may have shrunk or replaced it.
    """
    from holdfast.worker.shared_memory import LAYOUT, NUMBER_BYTES, REASON_BYTES, VERSION

    length = NUMBER_BYTES * (REASON_BYTES + 1)
    try:
        fd = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
        try:
            content = os.pread(fd, length, 0)
        finally:
            os.close(fd)
    except OSError:
        return None
    if len(content) < length:
        return None
    numbers = memoryview(content).cast("q")
    return numbers if numbers[VERSION] == LAYOUT else None


def request_stop(path: str, reason: str, deadline_ns: int) -> bool:
    """Write a request to stop to the page at `path`. False if it cannot be written.

    A worker that has no page yet finds the request in the page that it makes: both open the same file, and the one that
    comes first creates it. The reason is written first: a worker that sees the request can read it.
    """
    from holdfast.worker.shared_memory import (
        NUMBER_BYTES,
        REASON_BYTES,
        REASON_MAX_BYTES,
        REASON_OFFSET,
        STOP_NS,
    )

    text = reason.encode("utf-8", "backslashreplace")[:REASON_MAX_BYTES]
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | _OPEN_FLAGS, 0o600)
        try:
            os.pwrite(fd, text, REASON_OFFSET)
            os.pwrite(fd, len(text).to_bytes(NUMBER_BYTES, sys.byteorder), NUMBER_BYTES * REASON_BYTES)
            os.pwrite(fd, deadline_ns.to_bytes(NUMBER_BYTES, sys.byteorder), NUMBER_BYTES * STOP_NS)
        finally:
            os.close(fd)
    except OSError:
        return False
    return True


class WorkerPages:
    """The pages of the current attempt, in a private directory.

    The directory is locked while its owner lives. An agent that was killed leaves it behind, and the next agent removes
    it.
    """

    def __init__(self) -> None:
        self._directory: str | None = None
        self._lock = -1
        self._paths: dict[int, str] = {}
        self._attempts = 0

    def open(self, local_ranks: Iterable[int]) -> dict[int, str]:
        """The paths at which the workers of a new attempt can create their pages."""
        self.clear()
        if self._directory is None:
            self._make_directory()
        assert self._directory is not None
        self._attempts += 1
        self._paths = {rank: os.path.join(self._directory, f"{self._attempts}.{rank}") for rank in local_ranks}
        return self._paths

    def _make_directory(self) -> None:
        try:
            self._make_directory_in(MEMORY)
        except OSError:  # it is missing, closed to us, or takes no more names
            self._make_directory_in(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - likewise

    def _make_directory_in(self, parent: str) -> None:
        for name in os.listdir(parent):
            if name.startswith(PREFIX):
                _remove_if_left(os.path.join(parent, name))
        name = f"{PREFIX}{os.urandom(8).hex()}"
        new, final = os.path.join(parent, f".{name}"), os.path.join(parent, name)
        os.mkdir(new, 0o700)
        self._lock = _lock(new)
        os.rename(new, final)  # it must be locked before others can see it
        self._directory = final

    def ask_to_stop(self, reason: str, grace_s: float, running: Iterable[int]) -> bool:
        """Ask the workers with these local ranks to stop by themselves. False if none of them listens.

        The others are asked, too: they may still be importing, and listen before the grace period of those that listen
        already is over.
        """
        from holdfast.worker.shared_memory import FIFO_SUFFIX, LISTENS

        deadline_ns = time.monotonic_ns() + int(min(grace_s, 1e9) * 1e9)
        listens = False
        for path in (self._paths[rank] for rank in running):
            if not request_stop(path, reason, deadline_ns):
                continue
            numbers = read_page(path)
            listens = listens or (numbers is not None and bool(numbers[LISTENS]))
            with suppress(OSError):  # the worker has no callback yet, and looks at the page when it has one
                fd = os.open(f"{path}{FIFO_SUFFIX}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(fd, b"\n")
                finally:
                    os.close(fd)
        return listens

    def clear(self) -> None:
        """Remove the files of the last attempt's workers."""
        if self._directory is not None and self._paths:
            self._paths = {}
            empty(self._lock)

    def close(self) -> None:
        self.clear()
        if self._directory is not None:
            with suppress(OSError):
                os.rmdir(self._directory)
            os.close(self._lock)
            self._directory = None


def _lock(directory: str) -> int:
    """Lock the directory and return its descriptor. OSError if another process holds the lock, or it is a link."""
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove_if_left(directory: str) -> None:
    """Remove a stale directory of ours. Anyone can create such a name, so anything else is left alone."""
    with suppress(OSError):  # its owner is alive
        fd = _lock(directory)
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                empty(fd)
                os.rmdir(directory)
        finally:
            os.close(fd)
