"""What a template says to the agent: a few texts by name, as bytes.

The template has run the imports of somebody's program, so the agent reads what it says as it reads a worker's words:
nothing that comes can raise, or take much more memory than it has bytes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_MAX_BYTES = 64 * 1024
"""What one message holds."""

NAMES = frozenset({"importing", "problem", "modules", "stale", "fresh", "keeper", "refused"})
"""One of these is in every message."""

_BETWEEN = b"\0"

_PID_MAX_DIGITS = 10


def encode(message: Mapping[str, object]) -> bytes:
    """Names and values in turns. Of what is too long, the end is left out."""
    words = [str(word).replace("\0", "") for pair in message.items() for word in pair]
    return _BETWEEN.join(word.encode("utf-8", "backslashreplace") for word in words)[:MESSAGE_MAX_BYTES]


def decode(data: bytes) -> dict[str, str]:
    """What `encode` was given, as texts; nothing if these are other bytes."""
    words = [word.decode("utf-8", "replace") for word in data.split(_BETWEEN)]
    said = dict(zip(words[::2], words[1::2], strict=False))
    return said if NAMES & said.keys() else {}


def process_in(text: str) -> int:
    """The process identifier in a message; 0 if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _PID_MAX_DIGITS else 0
