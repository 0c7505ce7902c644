"""What a process that failed has left behind: the end of its stderr, the stacks of a native crash."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

END_MAX_BYTES = 16 * 1024
"""How much of the end of a log is read."""

STACKS_MAX_BYTES = 64 * 1024
"""How much of the stacks."""

STACKS_SUFFIX = ".stacks"
"""Beside a worker's page: the file that its fault handler writes the stacks of its threads to."""

PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"


def end_of(path: str, max_bytes: int = END_MAX_BYTES) -> str:
    """The last part of a file as text; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - max_bytes))
            return file.read(max_bytes).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def crash_stacks(env: Mapping[str, str]) -> str:
    """What the fault handler of a worker with this environment wrote when it crashed; "" if it did not."""
    page = env.get(PAGE_VARIABLE)
    if not page:
        return ""
    text = end_of(page + STACKS_SUFFIX, STACKS_MAX_BYTES)
    # The file has stacks that somebody asked for, too.
    begin = text.rfind("Fatal Python error")
    return text[begin:] if begin >= 0 else ""
