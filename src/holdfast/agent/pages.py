"""The pages that an agent shares with its workers: where they are, and what the agent writes there."""

from __future__ import annotations

import os
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY = "/dev/shm"  # noqa: S108 - the directory is private and its name random
"""Files here are never written to a disk. Where it is missing, any temporary directory does."""


class WorkerPages:
    """The pages of one attempt after the other, in a directory of their own."""

    def __init__(self) -> None:
        self._directory: str | None = None
        self._paths: dict[int, str] = {}
        self._attempts = 0

    def open(self, local_ranks: Iterable[int]) -> dict[int, str]:
        """Where each worker of a new attempt may make its page."""
        self.clear()
        if self._directory is None:
            parent = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - likewise
            self._directory = os.path.join(parent, f"holdfast-{os.getpid()}-{os.urandom(8).hex()}")
            os.mkdir(self._directory, 0o700)
        self._attempts += 1
        self._paths = {rank: os.path.join(self._directory, f"{self._attempts}.{rank}") for rank in local_ranks}
        return self._paths

    def ask_to_stop(self, reason: str, grace_s: float) -> bool:
        """Ask the workers that listen to stop by themselves. False if none does."""
        from holdfast.worker.page import FIFO_SUFFIX, LISTENS, Page  # noqa: PLC0415 - mmap is not for every job

        deadline_ns = time.monotonic_ns() + int(min(grace_s, 1e9) * 1e9)
        listens = False
        for path in self._paths.values():
            page = Page.find(path)
            if page is None or not page.numbers[LISTENS]:
                continue
            listens = True
            page.request_stop(reason, deadline_ns)
            with suppress(OSError):  # no callback, or its process has ended
                fd = os.open(f"{path}{FIFO_SUFFIX}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(fd, b"\n")
                finally:
                    os.close(fd)
        return listens

    def clear(self) -> None:
        """Remove what the workers of the last attempt made."""
        if self._directory is not None and self._paths:
            self._paths = {}
            with suppress(OSError):
                for name in os.listdir(self._directory):
                    os.unlink(os.path.join(self._directory, name))

    def close(self) -> None:
        self.clear()
        if self._directory is not None:
            with suppress(OSError):
                os.rmdir(self._directory)
            self._directory = None
