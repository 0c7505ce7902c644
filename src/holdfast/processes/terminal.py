"""A terminal for a worker in place of the console: of the same size, and every byte passes unchanged."""

from __future__ import annotations

import fcntl
import os
import termios

_WINDOW_BYTES = 8
"""The size of C's struct winsize."""


def open_terminal(window: bytes) -> tuple[int, int]:
    """Open a terminal; returns our end and its users' end. It becomes no process's controlling terminal."""
    ours, users = os.openpty()
    try:
        attributes = termios.tcgetattr(users)
        attributes[1] &= ~termios.OPOST  # the console converts line ends itself
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(users, termios.TCSANOW, attributes)
        if window:
            set_window(ours, window)
    except (OSError, termios.error) as error:
        os.close(ours)
        os.close(users)
        raise OSError(*error.args) from error
    return ours, users


def window_of(fd: int) -> bytes:
    """The size of a terminal's window, as the kernel's struct; b"" if it is unknown."""
    try:
        return fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(_WINDOW_BYTES))
    except OSError:
        return b""


def set_window(fd: int, window: bytes) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, window)
