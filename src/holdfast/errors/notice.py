"""Messages to the person who reads stderr, from places that must not fail.

All that holdfast itself says on stderr goes through here or through `holdfast.logger`, and is made visible there: a
part of it may be a worker's, a peer's or another user's text, which must not steer the terminal.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from holdfast.errors.text import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

CONSOLE_PATIENCE_S = 1.0
"""How long a message waits for a console that takes nothing. Then it is left out, and the next do not wait at all until
one is taken: an agent has more to do than to wait for a console that was stopped.
"""

PIECE_MAX_BYTES = 4096
"""What is written at once. A pipe that has any room takes this much without a wait, and in one piece (PIPE_BUF)."""

_PIECE_MAX_CHARS = PIECE_MAX_BYTES // 4  # a character has 4 bytes at the most

_stalled: set[int] = set()
"""The descriptors that took nothing when they were last written to."""


def say(text: str, patience_s: float | None = None) -> None:
    """Write `text` to stderr, in one piece if it has no more than 4 KiB.

    Does nothing where stderr is missing, closed, full or not read, or where what a program has put in its place fails.
    Not `logging`: every worker would pay for its import, and it may be the very thing that failed.
    """
    with suppress(Exception):
        written(sys.stderr, f"{visible(text)}\n", patience_s)


def notice(text: str) -> None:
    """Say `text` in the name of holdfast. Further lines are indented: none of them looks like another message."""
    say(f"holdfast: {text}".replace("\n", "\n  "))


def written(stream: Any, text: str, patience_s: float | None = None) -> bool:
    """Write `text`, which ends with a line feed, to a stream that may be a console. Whether it took all of it.

    One that takes nothing for `patience_s`, or CONSOLE_PATIENCE_S, is not waited for any longer. The descriptor is not
    made non-blocking: others share it.

    Raises:
        Exception: whatever the stream raises.
    """
    try:
        fd = stream.fileno()
    except (AttributeError, OSError, ValueError):  # not a file of the system's
        stream.write(text)
        stream.flush()
        return True
    for piece in _pieces(text):
        if not _has_room(fd, patience_s):
            return False
        stream.write(piece)
        stream.flush()
    return True


def _has_room(fd: int, patience_s: float | None) -> bool:
    import select

    if patience_s is None:
        patience_s = 0.0 if fd in _stalled else CONSOLE_PATIENCE_S
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    if poll.poll(patience_s * 1000):
        _stalled.discard(fd)
        return True
    _stalled.add(fd)
    return False


def _pieces(text: str) -> Iterator[str]:
    """As many whole lines as can be written at once, again and again; only a longer line is cut."""
    piece, size = "", 0
    for line in text.splitlines(keepends=True):
        for at in range(0, len(line), _PIECE_MAX_CHARS):
            part = line[at : at + _PIECE_MAX_CHARS]
            part_size = len(part.encode("utf-8", "backslashreplace"))
            if size + part_size > PIECE_MAX_BYTES:
                yield piece
                piece, size = "", 0
            piece, size = piece + part, size + part_size
    yield piece
