"""The three descriptors that every program expects to be open."""

from __future__ import annotations

import os


def open_missing() -> None:
    """Open closed standard descriptors on /dev/null. Otherwise our own pipes would get their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
