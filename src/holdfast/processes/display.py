"""A stream on which several threads show lines, one at a time.

A write to a console may block for hours (`console`). Meanwhile its thread holds no lock that others need: it bypasses
Python's buffers, which have locks.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import threading

from holdfast.processes.console import Console, GivenUpError, await_room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO


class SharedConsole(Console):
    """A console on which several threads take turns. All streams that lead to it share one instance."""

    def __init__(self, write_max_bytes: int = select.PIPE_BUF) -> None:
        super().__init__(write_max_bytes)
        self._changed = threading.Condition()
        self.is_taken = False

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

    consoles = SharedConsole()  # one for all, since several streams may lead to one terminal
    files = SharedConsole(sys.maxsize)  # separate, since a blocked console must not hold up a file

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._binary = _binary_layer(stream)
        self._flush_stream = getattr(stream, "flush", lambda: None)
        self.console = self.files if _is_file(stream) else self.consoles
        self._is_given_up = False

    def show(self, block: bytes) -> None:
        """Write a block of lines, however long that takes.

        Raises:
            GivenUpError: `give_up` was called. The current line is complete.
            Exception: whatever the stream raises.
        """
        if not block:
            return
        self.console.take(self._has_given_up)
        try:
            if self._binary is None:
                self._stream.write(block.decode("utf-8", "replace"))
                self.console.accepted_bytes += len(block)
            else:
                self._flush()  # text that others wrote before
                self.console.write(self._binary, block, self._has_given_up)
            self._flush()
        finally:
            self.console.give_back()

    def give_up(self) -> None:
        """Show nothing more. Any thread may call this."""
        self._is_given_up = True
        self.console.ask_again()

    def _has_given_up(self) -> bool:
        return self._is_given_up

    def _flush(self) -> None:
        while True:
            try:
                self._flush_stream()
            except BlockingIOError:
                await_room(self._stream)
            else:
                return


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


def _renew_consoles() -> None:
    Display.consoles, Display.files = SharedConsole(), SharedConsole(sys.maxsize)


os.register_at_fork(after_in_child=_renew_consoles)  # the thread that holds the turn does not exist in the child
