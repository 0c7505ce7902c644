"""Messages on stderr, for code that must not fail.

All that holdfast itself writes to stderr goes through here or through `holdfast.logger`, which escape it: a part may be
text of a worker, a peer or another user, and must not control the terminal.
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
"""How long a message waits for a blocked console. After that it is dropped, and further messages do not wait until one
is written: an agent must not wait for a stopped console.
"""

PIECE_MAX_BYTES = 4096
"""The size of one write. A pipe that has any room takes this much without blocking, and in one piece (PIPE_BUF)."""

_PIECE_MAX_CHARS = PIECE_MAX_BYTES // 4  # a character takes at most 4 bytes

_stalled: set[int] = set()
"""The descriptors whose last write timed out."""


def say(text: str, patience_s: float | None = None) -> None:
    """Write `text` to stderr, in one piece up to 4 KiB.

    Does nothing if stderr is missing, closed, full or unread, or if its replacement by the program fails. Does not use
    `logging`: every worker would pay for its import, and `logging` may be what failed.
    """
    with suppress(Exception):
        written(sys.stderr, f"{visible(text)}\n", patience_s)


def notice(text: str) -> None:
    """Write `text` with the prefix "holdfast: ". Further lines are indented, so that none looks like a new message."""
    say(f"holdfast: {text}".replace("\n", "\n  "))


def written(stream: Any, text: str, patience_s: float | None = None) -> bool:
    """Write `text`, which ends with a line feed, to a stream that may be a console. Returns whether all was written.

    Gives up if the stream takes nothing for `patience_s`, by default CONSOLE_PATIENCE_S. The descriptor stays blocking,
    because other processes share it.

    Raises:
        Exception: whatever the stream raises.
    """
    try:
        fd = stream.fileno()
    except (AttributeError, OSError, ValueError):  # not an operating system file
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
    """Split `text` into pieces of whole lines, each small enough for one write. Only a longer line is cut."""
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
