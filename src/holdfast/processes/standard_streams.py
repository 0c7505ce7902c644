"""The three descriptors that every program expects to be open."""

from __future__ import annotations

import os


def open_missing() -> None:
    """Let those that are closed lead to nowhere. Else our own pipes would take their numbers, and their meaning."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
