"""Docstrings are plain text with a little Markdown in it; autodoc wants reStructuredText."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_FENCE = re.compile(r"^(\s*)```(\w*)$")
_LITERAL = re.compile(r"(``[^`]+``|`[^`]+`)(?=(\w?))")

_MEMBER = re.compile(r"<(\w+\.\w+): [^>]*>")


def with_joints(line: str) -> str:
    """The line with what reStructuredText needs between a literal and letters that follow upon it: `Store`s."""
    return _LITERAL.sub(lambda found: f"{found[1]}\\ " if found[2] else found[1], line)


def fences_as_blocks(lines: list[str]) -> list[str]:
    """The lines with fenced code as code blocks."""
    made: list[str] = []
    indent: str | None = None
    for line in lines:
        fence = _FENCE.match(line)
        if fence and indent is None:
            indent = fence[1]
            made += ["", f"{indent}.. code-block:: {fence[2] or 'text'}", ""]
        elif fence:
            indent = None
            made.append("")
        else:
            made.append(with_joints(line) if indent is None else f"   {line}".rstrip())
    return made


def _on_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    del app, what, name, obj, options
    lines[:] = fences_as_blocks(lines)


def plain_defaults(signature: str) -> str:
    """A signature with members of enumerations as they are written in code: ``Std.NONE``, not ``<Std.NONE: 0>``."""
    return _MEMBER.sub(r"\1", signature)


def _on_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    del app, what, name, obj, options
    return None if signature is None else (plain_defaults(signature), returns)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _on_docstring)
    app.connect("autodoc-process-signature", _on_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
