"""The template's messages to the agent: a few strings by name, as bytes.

The template has run the imports of a user's program, so the agent does not trust its messages, as with a worker's:
decoding never raises, and takes little more memory than the message has bytes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_MAX_BYTES = 64 * 1024
"""The size of one message."""

DESCRIPTORS_MAX = 250
"""How many descriptors one message carries: the kernel allows 253."""

NAMES = frozenset({"importing", "problem", "modules", "stale", "fresh", "keeper", "refused"})
"""Every message has one of these names."""

_BETWEEN = b"\0"

_PID_MAX_DIGITS = 10


def encode(message: Mapping[str, object]) -> bytes:
    """Names and values in turn. The end of a long message is cut off."""
    words = [str(word).replace("\0", "") for pair in message.items() for word in pair]
    return _BETWEEN.join(word.encode("utf-8", "backslashreplace") for word in words)[:MESSAGE_MAX_BYTES]


def decode(data: bytes) -> dict[str, str]:
    """The message that `encode` was given, as strings; empty if the bytes are no message."""
    words = [word.decode("utf-8", "replace") for word in data.split(_BETWEEN)]
    said = dict(zip(words[::2], words[1::2], strict=False))
    return said if NAMES & said.keys() else {}


def failed_import(name: str, error: BaseException) -> str:
    """Why the module `name` was not imported, for people."""
    is_missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
    return f"no module named {name!r}" if is_missing else f"{name!r} cannot be imported ({type(error).__name__})"


def process_in(text: str) -> int:
    """The process id in a message; 0 if it has none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _PID_MAX_DIGITS else 0
