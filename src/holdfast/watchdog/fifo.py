"""The named pipe that workers write their requests to."""

from __future__ import annotations

import os
import select
import stat
from contextlib import suppress

from holdfast.errors.tree import InputError

TIMER_FILE_VARIABLE = "TORCHELASTIC_TIMER_FILE"
"""The environment variable that names the pipe; the agent sets it for its workers."""

LINE_MAX_BYTES = select.PIPE_BUF
"""The longest line, with its line feed: the kernel writes up to PIPE_BUF bytes atomically."""

READ_BYTES = 64 * 1024
"""The capacity of a pipe on Linux: one read takes all that was written before it, and never more than this."""


class RequestPipe:
    """A named pipe at `path` that only its owner can open. It exists and is readable until it is closed.

    An existing pipe at `path` is a leftover of an earlier server, and is replaced.

    Raises:
        InputError: the path cannot be used.
    """

    __slots__ = ("_fd", "_lines", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines = LineSplitter()
        try:
            _remove_leftover(path)
            os.mkfifo(path, 0o600)
            # Also for writing: a pipe with a writer never reaches its end, however many clients come and go.
            self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            raise InputError(
                f"the watchdog cannot make its named pipe {path!r}: {error.strerror}; "
                f"set {TIMER_FILE_VARIABLE} to a path in a directory that can be written to"
            ) from error

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[bytes]:
        """The complete lines so far, without blocking."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return []
        return self._lines.feed(data)

    def close(self) -> None:
        """Remove the pipe, unless another file has replaced it."""
        with suppress(OSError):
            if os.path.samestat(os.lstat(self._path), os.fstat(self._fd)):
                os.unlink(self._path)
        os.close(self._fd)


class LineSplitter:
    """Splits bytes into lines. Keeps just enough of an overlong line to recognise that it is too long."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without line feeds."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_MAX_BYTES]
        return lines


def _remove_leftover(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISFIFO(mode):
        raise InputError(
            f"the watchdog cannot make its named pipe {path!r}: something else has this name; "
            f"move it away, or set {TIMER_FILE_VARIABLE} to another path"
        )
    os.unlink(path)
