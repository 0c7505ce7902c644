"""Make text of unknown origin safe to store and to print."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COLOURS = ("0", "1", "2", "31", "32", "33", "1;31")
"""The codes of the colours and weights that holdfast uses on a terminal."""

REASON_MAX_CHARS = 400
"""How much of a plug-in's exception is shown in a line."""

_JOINERS = "\u200c\u200d"
"""The characters that join Persian words and many emoji."""

_SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""Spaces of other widths, which Python does not consider printable."""

_HARMLESS = frozenset("\n\t" + _JOINERS + _SPACES)


def clipped(text: str, limit_chars: int, whole: str = "") -> str:
    """`text`; if it is longer than `limit_chars`, its head and tail with a note of what is missing.

    Both ends matter: a traceback names the program at its head and the error at its tail. `whole` is the path of the
    file with all of it, for the note.
    """
    missing = len(text) - limit_chars
    if missing <= 0:
        return text
    head = limit_chars // 2
    where = f"; the whole text is in {whole!r}" if whole else ""
    return f"{text[:head]}\n... {missing} characters left out{where} ...\n{text[head + missing :]}"


def encodable(text: str) -> str:
    """`text` with lone surrogates escaped, because no file or terminal accepts them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: Any) -> Any:
    """`value`, made of dicts, lists and plain values, with every string in it `encodable`."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {all_encodable(key): all_encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_encodable(item) for item in value]
    return value


def visible(text: str) -> str:
    """`text` with everything that could control a terminal escaped; line breaks and tabs stay.

    Escapes control characters (DEL and the eight-bit ones, too), marks that change the text direction, other invisible
    characters, and lone surrogates. Letters, signs and emoji of any script stay as they are.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def visible_line(text: str) -> str:
    """`visible`, in one line: line breaks and tabs are escaped, too, so that the text cannot add a line to ours."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def painted(text: str) -> str:
    """`visible`, but keeps the codes of `COLOURS`, for text that was rendered with them.

    The renderer must escape each foreign text beforehand, so that all codes in `text` are ours.
    """
    import re

    pieces = re.split(rf"(\x1b\[(?:{'|'.join(COLOURS)})m)", text)
    return "".join(piece if place % 2 else visible(piece) for place, piece in enumerate(pieces))


def _shown(char: str) -> str:
    return char if char.isprintable() or char in _HARMLESS else ascii(char)[1:-1]


def headline(text: str, limit_chars: int) -> str:
    """The most informative line of `text`, cut to `limit_chars`: the first line, or the last of a traceback."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())] or [""]
    line = lines[-1 if lines[0].startswith("Traceback ") else 0]
    return line if len(line) <= limit_chars else f"{line[: limit_chars - 3]}..."
