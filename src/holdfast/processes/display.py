"""A stream on which several threads show lines, one at a time.

A console may accept nothing for hours: Ctrl-S, a pager, a full pipe. A write then blocks. So a thread writes, and it
holds no lock that others need meanwhile: it bypasses Python's buffers, which have locks.
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
    """The caller no longer waits for the lines to be shown."""


class Turns:
    """Lets one thread at a time write. All streams that lead to a console share one instance."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.is_taken = False
        self.taken_bytes = 0
        """How many bytes the streams have accepted so far."""

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
        """Let waiting threads check whether they have given up."""
        with self._changed:
            self._changed.notify_all()


class Display:
    """A stream that accepts blocks of whole lines."""

    consoles = Turns()  # one for all, since several streams may lead to one terminal
    files = Turns()  # separate, since a blocked console must not hold up a file

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
            GivenUpError: `give_up` was called. The current line is complete.
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
                self._flush()  # text that others wrote before
                for piece in (memoryview(block),) if self._is_file else _pieces(block):
                    if self._is_given_up:
                        raise GivenUpError
                    self._write(self._binary, piece)
                    self.turns.taken_bytes += len(piece)
            self._flush()
        finally:
            self.turns.give_back()

    def give_up(self) -> None:
        """Show nothing more. Any thread may call this."""
        self._is_given_up = True
        self.turns.ask_again()

    def _write(self, binary: Any, rest: memoryview) -> None:
        while rest:
            try:
                written = binary.write(rest)
            except BlockingIOError as full:
                written = full.characters_written
            rest = rest[written or 0 :]  # None: an unbuffered stream that accepted nothing
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
        """Wait until the stream accepts data: another user of the terminal may have made it non-blocking."""
        room = select.poll()  # not select(), which cannot handle descriptors above 1023
        room.register(self._stream, select.POLLOUT)
        room.poll()


def _binary_layer(stream: TextIO) -> Any:
    """Where to write bytes, or None if the stream accepts only text.

    Not to the stream's buffer: a thread that blocks there holds a lock, and the interpreter needs that lock when it
    exits.
    """
    # A stream may wrap another and change the text, as objects that users put into `sys.stdout` do.
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
    """Split a block into pieces of whole lines that a pipe accepts atomically. So nothing comes between the parts of a
    line when the pipe is full; only a line longer than that can be split.
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


os.register_at_fork(after_in_child=_renew_turns)  # the thread that holds the turn does not exist in the child
