"""Pieces of Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells are Markdown in one line."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    """Text as code, whatever backticks it has."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def from_docstring(text: str) -> str:
    """A docstring's text in one line of Markdown. What stands in double backticks there does in single ones here."""
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split()))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
