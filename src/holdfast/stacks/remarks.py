"""Adds facts about a process before its stacks, as remarks: its step, and its current source line."""

from __future__ import annotations

import os

from holdfast.files import read_regular
from holdfast.stacks.parse import LINE, STEP, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.stacks.parse import Frame

LINE_MAX_CHARS = 200
"""How much of a source line is kept."""

SOURCE_MAX_BYTES = 2 << 20
"""How much of a source file is read. The largest file in torch has half of that."""


def with_remarks(text: str, step: int = -1) -> str:
    """Stacks with the step, unless it is negative, and the source line of the main thread's innermost frame."""
    main = parse(text).main
    line = _source_line(main.frames[0]) if main is not None and main.frames else ""
    remarks = [*([f"{STEP}{step}\n"] if step >= 0 else []), *([f"{LINE}{line}\n"] if line else [])]
    return "".join(remarks) + text


def _source_line(frame: Frame) -> str:
    """The source line of a frame, as the file is now; "" if it cannot be read."""
    # The worker chose the name: read only Python files, and do not block on a pipe.
    if not frame.file.endswith(".py") or not os.path.isabs(frame.file):
        return ""
    try:
        lines = read_regular(frame.file, SOURCE_MAX_BYTES, follow=True).split(b"\n")
    except OSError:
        return ""
    if not 0 < frame.line <= len(lines):
        return ""
    text = lines[frame.line - 1].decode("utf-8", "replace")
    return " ".join(text.split())[:LINE_MAX_CHARS]  # a remark is one line, so no other line break of Python's may stay
