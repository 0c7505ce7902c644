"""Text of unknown origin, made fit to store and to print."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def clipped(text: str, limit_chars: int) -> str:
    """`text`, or of one longer than `limit_chars` the head and the tail, with a note of what is missing.

    Both ends matter: a traceback names the program at its head and the error at its tail.
    """
    missing = len(text) - limit_chars
    if missing <= 0:
        return text
    head = limit_chars // 2
    return f"{text[:head]}\n... {missing} characters left out ...\n{text[head + missing :]}"


def encodable(text: str) -> str:
    """`text` with lone surrogates, which no file and no terminal accepts, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: Any) -> Any:
    """`value`, made of dicts, lists and plain values, with every text in it `encodable`."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {all_encodable(key): all_encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_encodable(item) for item in value]
    return value


def visible(text: str) -> str:
    """`text` with control characters, which could play tricks with a terminal, as escapes."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def headline(text: str, limit_chars: int) -> str:
    """The one line of `text` that says most, the first or of a traceback the last, cut to `limit_chars`."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())] or [""]
    line = lines[-1 if lines[0].startswith("Traceback ") else 0]
    return line if len(line) <= limit_chars else f"{line[: limit_chars - 3]}..."
