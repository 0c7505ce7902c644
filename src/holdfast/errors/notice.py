"""Messages to the person who reads stderr, from places that must not fail.

All that holdfast itself says on stderr goes through here or through `holdfast.logger`, and is made visible there: a
part of it may be a worker's, a peer's or another user's text, which must not steer the terminal.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from holdfast.errors.text import visible


def say(text: str) -> None:
    """Write `text` to stderr, in one piece.

    Does nothing where stderr is missing, closed or full, or where what a program has put in its place fails.
    Not `logging`: every worker would pay for its import, and it may be the very thing that failed.
    """
    with suppress(Exception):
        sys.stderr.write(f"{visible(text)}\n")
        sys.stderr.flush()


def notice(text: str) -> None:
    """Say `text` in the name of holdfast. Further lines are indented: none of them looks like another message."""
    say(f"holdfast: {text}".replace("\n", "\n  "))
