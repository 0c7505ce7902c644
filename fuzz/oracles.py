"""Promises that many targets check beside "it raises nothing": text that is fit for a terminal, pieces that make no
difference.
"""

from __future__ import annotations

import random
import unicodedata
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_MAX_BYTES = 64
"""How long the longest piece is that an input is cut into. Most are much shorter."""

_JOINERS = "\u200c\u200d"
"""Invisible characters that words and emoji of some scripts need."""

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


class BrokenPromiseError(AssertionError):
    """The code did something that it promises not to do."""


def promise(is_kept: object, what: str) -> None:
    """Raise if a promise is not kept. Unlike `assert`, it works without debugging, too."""
    if not is_kept:
        raise BrokenPromiseError(what)


def _is_harmless(char: str) -> bool:
    """Whether a terminal shows it as it is. Spaces of all widths are, which Python does not call printable."""
    return char.isprintable() or char in "\n\t" or char in _JOINERS or unicodedata.category(char) == "Zs"


def check_shown(text: str, what: str, limit_chars: int) -> None:
    """`text` goes to a terminal or a log: it is bounded, and plays no tricks."""
    promise(len(text) <= limit_chars, f"{what} has {len(text)} characters, more than {limit_chars}")
    bad = None if text.isprintable() else next((char for char in text if not _is_harmless(char)), None)
    promise(bad is None, f"{what} has the control character {bad!r}")


def check_one_line(text: str, what: str, limit_chars: int) -> None:
    """`text` is one bounded line, of a person's own words."""
    promise(len(text) <= limit_chars, f"{what} has {len(text)} characters, more than {limit_chars}")
    promise(text.strip(), f"{what} is empty")
    promise("\n" not in text, f"{what} has more than one line")


def check_line(text: str, what: str, limit_chars: int) -> None:
    """`text` is one line of what is shown."""
    check_shown(text, what, limit_chars)
    promise(not any(char in text for char in _LINE_ENDS), f"{what} has more than one line")


def chance_of(data: bytes) -> random.Random:
    """Chance that depends on the input alone, so that an input always does the same."""
    return random.Random(zlib.crc32(data))


def pieces(data: bytes) -> Iterator[bytes]:
    """`data`, cut somewhere."""
    chance = chance_of(data)
    at = 0
    longest = chance.choice((1, 3, 9, PIECE_MAX_BYTES, max(1, len(data))))
    while at < len(data):
        end = at + chance.randint(1, longest)
        yield data[at:end]
        at = end
