"""Notices to the person who reads stderr, from places that must not fail."""

from __future__ import annotations

import sys
from contextlib import suppress


def notice(text: str) -> None:
    """Write `text` to stderr, in one piece.

    Does nothing where stderr is missing, closed or full, or where what a program has put in its place fails.
    Not `logging`: every worker would pay for its import, and it may be the very thing that failed.
    """
    with suppress(Exception):
        sys.stderr.write(f"holdfast: {text}\n")
        sys.stderr.flush()
