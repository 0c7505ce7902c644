"""What a person asks of an agent that runs: lines in a named pipe in the run's directory.

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

NAME = "requests"
"""The pipe's name in the run's directory."""

STACKS = "stacks"

LINE_MAX_BYTES = 128
"""How long a line may be."""

READ_MAX_BYTES = 4_096
"""How much is taken in at a time."""

REQUESTS_MAX = 8
"""How many requests are answered at a time. Whoever asks in a loop is not to stop the agent from its work."""

_LINE = re.compile(rb"(stacks) (%s)" % NAME_PATTERN.encode())


class Request:
    """What is asked for, and the name of the answer, which is fit to be a file's."""

    __slots__ = ("id", "kind")

    def __init__(self, kind: str, id: str) -> None:  # noqa: A002 - that is what it is
        self.kind = kind
        self.id = id

    def __repr__(self) -> str:
        return f"Request({self.kind!r}, {self.id!r})"


class Requests:
    """The pipe at `path`, for its owner alone. A pipe that is there already is left over, and is replaced.

    Raises:
        OSError: it cannot be made; something else has its name, say.
    """

    __slots__ = ("_fd", "_path", "_rest")

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest = b""
        with suppress(FileNotFoundError):
            if stat.S_ISFIFO(os.lstat(path).st_mode):
                os.unlink(path)
        os.mkfifo(path, 0o600)
        # Also for writing: a pipe with a writer never ends, however many people come and go.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[Request]:
        """The requests that have come, without waiting for any. What is not understood is passed over."""
        try:
            data = os.read(self._fd, READ_MAX_BYTES)
        except BlockingIOError:
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_MAX_BYTES + 1]
        found = [match for line in lines if (match := _LINE.fullmatch(line))]
        return [Request(match[1].decode(), match[2].decode()) for match in found[:REQUESTS_MAX]]

    def close(self) -> None:
        """Remove it, unless another one has taken its place. Said again, it does nothing."""
        if self._fd < 0:
            return
        with suppress(OSError):
            if os.path.samestat(os.lstat(self._path), os.fstat(self._fd)):
                os.unlink(self._path)
        os.close(self._fd)
        self._fd = -1
