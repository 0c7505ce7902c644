"""Whether a command printed what the page shows.

The lines of the page have to be among what was printed, in their order, with others between them. A number stands for
any number, a time for any time, a path for any that ends alike, the name of a machine for any machine's, and `...` for
anything. Lines that several workers print at once may run together, since the end of a line is a write of its own.
"""

from __future__ import annotations

import os
import re

_NUMBER = r"\d[\d_:.]*(?:e[+-]?\d+)?(?: (?:ms|s|min|h)\b)?"
_PATH = r"(?:/[\w.@+=-]+)+"
_HOST = r"\bnode\d+\b"
_PIECES = re.compile(rf"(?P<any>\.\.\.)|(?P<path>{_PATH})|(?P<host>{_HOST})|(?P<number>{_NUMBER})|(?P<space>\s+)")


def missing_line(shown: list[str], printed: str) -> str | None:
    """The first line of the page that was not printed where it should be."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    end = 0
    for line in shown:
        if line.strip() in ("", "..."):
            continue
        pattern = pattern_of(line)
        whole = rf"{pattern}(?=[ \t]*$|{pattern})"
        found = re.compile(whole, re.MULTILINE).match(text, end) if end else None
        found = found or re.compile(rf"^[ \t]*{whole}", re.MULTILINE).search(text, end)
        if found is None:
            return line
        end = found.end()
    return None


def pattern_of(line: str) -> str:
    parts, end = [], 0
    line = line.strip()
    for piece in _PIECES.finditer(line):
        parts.append(re.escape(line[end : piece.start()]))
        parts.append(_looser(piece))
        end = piece.end()
    return "".join(parts) + re.escape(line[end:])


def _looser(piece: re.Match[str]) -> str:
    if piece["any"]:
        return ".*?"
    if piece["path"]:
        last = os.path.basename(piece["path"])
        ending = re.sub(r"\d+", r"\\d+", re.escape(last))
        return rf"(?:/\S*)?/{ending}" if "." in last else r"/\S*"
    if piece["host"]:
        return rf"(?:{_HOST}|{re.escape(os.uname().nodename)})"
    if piece["number"]:
        return _NUMBER
    return r"\s+"
