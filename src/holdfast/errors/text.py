"""Text of unknown origin, made fit to store and to print."""

from __future__ import annotations


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


def visible(text: str) -> str:
    """`text` with control characters, which could play tricks with a terminal, as escapes."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def headline(text: str, limit_chars: int) -> str:
    """The one line of `text` that says most, the first or of a traceback the last, cut to `limit_chars`."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())] or [""]
    line = lines[-1 if lines[0].startswith("Traceback ") else 0]
    return line if len(line) <= limit_chars else f"{line[: limit_chars - 3]}..."
