"""A stream that threads show lines on, one at a time.

A console may take nothing for hours: Ctrl-S, a pager, a full pipe. Then whoever shows lines waits in a write. So a
thread writes, and it holds nothing meanwhile that others need: it writes past Python's buffers, which have locks.
"""

from __future__ import annotations

import io
import os
import select
import stat
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TextIO


class GivenUpError(Exception):
    """Nobody wants to wait any more until the lines are shown."""


class Turns:
    """Who may write: one at a time. All streams that lead to a console share one of these."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.is_taken = False
        self.taken_bytes = 0
        """How much the streams have taken so far."""

    def take(self, is_given_up: Callable[[], bool]) -> None:
        """Wait for a turn.

        Raises:
            GivenUpError: `is_given_up` was true first.
        """
        with self._changed:
            self._changed.wait_for(lambda: is_given_up() or not self.is_taken)
            if is_given_up():
                raise GivenUpError
            self.is_taken = True

    def give_back(self) -> None:
        with self._changed:
            self.is_taken = False
            self._changed.notify_all()

    def ask_again(self) -> None:
        """Let those who wait see whether they have given up."""
        with self._changed:
            self._changed.notify_all()


class Display:
    """A stream that takes blocks of whole lines."""

    consoles = Turns()  # one for all, since several may lead to one terminal
    files = Turns()  # apart, since a console that takes nothing must not hold up a file

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._binary = _binary_layer(stream)
        self._flush_stream = getattr(stream, "flush", lambda: None)
        self._is_file = _is_file(stream)
        self.turns = self.files if self._is_file else self.consoles
        self._is_given_up = False

    def show(self, block: bytes) -> None:
        """Write a block of lines, however long that takes.

        Raises:
            GivenUpError: `give_up` was called. The line that was being written is complete.
            Exception: whatever the stream raises.
        """
        if not block:
            return
        self.turns.take(lambda: self._is_given_up)
        try:
            if self._binary is None:
                self._stream.write(block.decode("utf-8", "replace"))
                self.turns.taken_bytes += len(block)
            else:
                self._flush()  # what others wrote as text before
                for piece in (memoryview(block),) if self._is_file else _pieces(block):
                    if self._is_given_up:
                        raise GivenUpError
                    self._write(self._binary, piece)
                    self.turns.taken_bytes += len(piece)
            self._flush()
        finally:
            self.turns.give_back()

    def give_up(self) -> None:
        """Show nothing more. Any thread may call it."""
        self._is_given_up = True
        self.turns.ask_again()

    def _write(self, binary: Any, rest: memoryview) -> None:
        while rest:
            try:
                written = binary.write(rest)
            except BlockingIOError as full:
                written = full.characters_written
            rest = rest[written or 0 :]  # None: an unbuffered stream that took nothing
            if rest:
                self._await_room()

    def _flush(self) -> None:
        while True:
            try:
                self._flush_stream()
            except BlockingIOError:
                self._await_room()
            else:
                return

    def _await_room(self) -> None:
        """Whoever shares the terminal may have made it non-blocking."""
        room = select.poll()  # not select(), which knows no descriptor above 1023
        room.register(self._stream, select.POLLOUT)
        room.poll()


def _binary_layer(stream: TextIO) -> Any:
    """Where to write bytes, or None if the stream takes only text.

    Not to the stream's buffer, if it has one: a thread that waits in there holds a lock, and the interpreter needs that
    when it ends.
    """
    # A stream may delegate to another and do something of its own on the way, as people put into `sys.stdout`.
    if not isinstance(stream, io.TextIOWrapper) or stream.write != io.TextIOWrapper.write.__get__(stream):
        return None
    buffer = stream.buffer
    return buffer.raw if isinstance(buffer, io.BufferedWriter) else buffer


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):
        return False


def _pieces(block: bytes) -> Iterator[memoryview]:
    """As many whole lines as a pipe takes in one piece, again and again, so that nothing comes between the parts of a
    line when the pipe is full; only a longer line can be torn then.
    """
    view = memoryview(block)
    at = 0
    while at < len(block):
        end = len(block)
        if end - at > select.PIPE_BUF:
            end = block.rfind(b"\n", at, at + select.PIPE_BUF) + 1 or block.find(b"\n", at) + 1 or end
        yield view[at:end]
        at = end


def _renew_turns() -> None:
    Display.consoles, Display.files = Turns(), Turns()


os.register_at_fork(after_in_child=_renew_turns)  # the thread whose turn it may be is not in the child
