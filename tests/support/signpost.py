"""A named pipe that a test reads and any number of processes write to: how a test waits for an event elsewhere."""

from __future__ import annotations

import os
import select
import time

DEADLINE_S = 60.0


class Signpost:
    """Lines that other processes wrote to `path`, in order."""

    def __init__(self, path):
        self.path = str(path)
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)  # also for writing: so it never ends
        self._data = b""

    def fileno(self) -> int:
        """Readable when something was written that `line` has not read."""
        return self._fd

    def line(self) -> str:
        """The next line, waited for."""
        deadline = time.monotonic() + DEADLINE_S
        while b"\n" not in self._data:
            readable, _, _ = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError(f"no line in {self.path} within {DEADLINE_S} s; so far {self._data!r}")
            self._data += os.read(self._fd, 65536)
        line, _, self._data = self._data.partition(b"\n")
        return line.decode()

    def lines(self, count: int) -> list[str]:
        return [self.line() for _ in range(count)]

    def pids(self, count: int) -> list[int]:
        return [int(line.split()[-1]) for line in self.lines(count)]

    def close(self):
        os.close(self._fd)


def tell(path: str, text: object) -> None:
    """In another process: write a line."""
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)
