"""Writes to a console, and decides how long to wait for it.

A console may accept nothing for hours: Ctrl-S, a pager, a full pipe. Its descriptor is shared with other processes, so
it cannot be made non-blocking, and a write blocks. So a thread writes, and others look at how much the console has
accepted: one that is slow is waited for longer than one that accepts nothing.

A keeper's fresh interpreter imports this module, so it needs no `threading`.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    class HasDescriptor(Protocol):
        def fileno(self) -> int: ...

    class Sink(HasDescriptor, Protocol):
        """Where bytes go. `write` returns how many it accepted, or None if it would block."""

        def write(self, data: memoryview, /) -> int | None: ...


class GivenUpError(Exception):
    """The caller no longer waits for the lines to be shown."""


class Console:
    """What may accept nothing for hours, and how much it has accepted. Several sinks may lead to it.

    One thread at a time may write. Any thread may read `accepted_bytes`.

    Args:
        write_max_bytes: how much to write at once. The default is what a pipe accepts atomically. It is also small
            enough for a slow console to show progress.
    """

    def __init__(self, write_max_bytes: int = select.PIPE_BUF) -> None:
        self._write_max_bytes = write_max_bytes
        self.accepted_bytes = 0

    def write(self, sink: Sink, block: bytes, is_given_up: Callable[[], bool] = lambda: False) -> None:
        """Write all of a block, however long that takes.

        Raises:
            GivenUpError: `is_given_up` became true. The current line is complete.
            Exception: whatever the sink raises. The rest of the block is not written.
        """
        for piece in _pieces(block, self._write_max_bytes):
            if is_given_up():
                raise GivenUpError
            self._write_piece(sink, piece)

    def _write_piece(self, sink: Sink, rest: memoryview) -> None:
        while rest:
            try:
                accepted = sink.write(rest) or 0
            except BlockingIOError as full:
                accepted = full.characters_written
            self.accepted_bytes += accepted
            rest = rest[accepted:]
            if rest:
                await_room(sink)


class Descriptor:
    """A sink that is a descriptor of this process."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def write(self, data: memoryview, /) -> int | None:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return None


class Patience:
    """How long to wait for a console: until it has accepted nothing for `stalls_s`, and at most until `limit`.

    `deadline` is when to look again. Times are those of one monotonic clock.
    """

    __slots__ = ("_accepted_bytes", "_limit", "_stalls_s", "deadline")

    def __init__(self, stalls_s: float, accepted_bytes: int, now: float, limit: float = float("inf")) -> None:
        self._stalls_s = stalls_s
        self._limit = limit
        self._accepted_bytes = accepted_bytes
        self.deadline = min(now + stalls_s, limit)

    def is_over(self, accepted_bytes: int, now: float, *, is_held_up: bool = True) -> bool:
        """Whether to wait no longer. If not, the deadline is a later one.

        Args:
            accepted_bytes: how much the console has accepted so far.
            now: the time.
            is_held_up: whether the writer waits for the console, and not for a CPU.
        """
        if now < self.deadline:
            return False
        if now >= self._limit or (is_held_up and accepted_bytes == self._accepted_bytes):
            return True
        self._accepted_bytes = accepted_bytes
        self.deadline = min(now + self._stalls_s, self._limit)
        return False


def await_room(stream: HasDescriptor) -> None:
    """Wait until a stream accepts data: another user of the terminal may have made it non-blocking."""
    room = select.poll()  # not select(), which cannot handle descriptors above 1023
    room.register(stream, select.POLLOUT)
    room.poll()


def _pieces(block: bytes, max_bytes: int) -> Iterator[memoryview]:
    """Split a block into pieces of whole lines. So nothing comes between the parts of a line when the console is full;
    only a line longer than a piece can be split.
    """
    view = memoryview(block)
    at = 0
    while at < len(block):
        end = len(block)
        if end - at > max_bytes:
            end = block.rfind(b"\n", at, at + max_bytes) + 1 or block.find(b"\n", at) + 1 or end
        yield view[at:end]
        at = end
