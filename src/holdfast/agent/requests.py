"""Requests to a running agent: lines in a named pipe in the run's directory.

| line | asks for |
|---|---|
| ``stacks ID`` | the stacks of all ranks, in the files ``stacks/ID.txt`` and ``stacks/ID.json`` of the directory |
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress

from holdfast.files import NAME_PATTERN

STACKS = "stacks"

LINE_MAX_BYTES = 128
"""The longest line."""

READ_MAX_BYTES = 4_096
"""The size of one read. It bounds how many requests wait here; the others wait in the pipe."""

REQUESTS_MAX = 8
"""How many requests are answered at a time. A client that asks in a loop must not keep the agent from its work. The
others wait: a client that has given up leaves its request behind, and one that still waits may come after it.
"""

_LINE = re.compile(rb"(stacks) (%s)" % NAME_PATTERN.encode())


class Request:
    """A request: its kind, and the name of the answer, which is safe as a file name."""

    __slots__ = ("id", "kind")

    def __init__(self, kind: str, id: str) -> None:  # noqa: A002 - the natural name
        self.kind = kind
        self.id = id

    def __repr__(self) -> str:
        return f"Request({self.kind!r}, {self.id!r})"


class Requests:
    """The pipe at `path`, which only its owner can use. Replaces a stale pipe.

    Raises:
        OSError: the pipe cannot be made, for example because another kind of file has its name.
    """

    __slots__ = ("_fd", "_path", "_rest", "_waiting")

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest = b""
        self._waiting: list[Request] = []
        self._fd = _new_pipe(path)

    def move(self, path: str) -> None:
        """Take requests from a pipe at `path`, because the directory of the first one is lost.

        Raises:
            OSError: the pipe cannot be made.
        """
        fd = _new_pipe(path)
        self.close()
        self._path, self._fd, self._rest = path, fd, b""

    def fileno(self) -> int:
        return self._fd

    @property
    def has_waiting(self) -> bool:
        """Whether `read` has more requests, although the pipe may be empty."""
        return bool(self._waiting)

    def read(self) -> list[Request]:
        """The next requests that have arrived, without waiting, `REQUESTS_MAX` at most. Invalid lines are skipped."""
        if not self._waiting:
            self._waiting = self._arrived()
        first, self._waiting = self._waiting[:REQUESTS_MAX], self._waiting[REQUESTS_MAX:]
        return first

    def _arrived(self) -> list[Request]:
        try:
            data = os.read(self._fd, READ_MAX_BYTES)
        except BlockingIOError:
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_MAX_BYTES + 1]
        found = [match for line in lines if (match := _LINE.fullmatch(line))]
        return [Request(match[1].decode(), match[2].decode()) for match in found]

    def close(self) -> None:
        """Close the pipe, and remove it unless another one has replaced it. A second call does nothing."""
        if self._fd < 0:
            return
        with suppress(OSError):
            if os.path.samestat(os.lstat(self._path), os.fstat(self._fd)):
                os.unlink(self._path)
        os.close(self._fd)
        self._fd = -1


def _new_pipe(path: str) -> int:
    with suppress(FileNotFoundError):
        if stat.S_ISFIFO(os.lstat(path).st_mode):
            os.unlink(path)
    os.mkfifo(path, 0o600)
    # Open it for writing, too: a pipe with a writer never reports end of file when clients come and go.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
