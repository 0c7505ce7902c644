"""What a process has left behind: the end of its stderr, the stacks of a native crash, the mark of a good end."""

from __future__ import annotations

import os

from holdfast.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

END_MAX_BYTES = 16 * 1024
"""How much of the end of a log is read."""

STACKS_MAX_BYTES = 64 * 1024
"""How much of the stacks is read."""

STACKS_SUFFIX = ".stacks"
"""The file beside a worker's page to which its fault handler writes the stacks."""

END_SUFFIX = ".ended"
"""The file beside a worker's page that holds the process id of a program that ended well."""

END_MARK_MAX_BYTES = 32

PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"


def end_of(path: str, max_bytes: int = END_MAX_BYTES) -> str:
    """The end of a file as text; "" if it cannot be read, or is not a file: a worker may have put a pipe there."""
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def has_ended_well(env: Mapping[str, str], pid: int) -> bool:
    """Whether the program of the worker `pid`, with this environment, ended well before its interpreter shut down."""
    page = env.get(PAGE_VARIABLE)
    return bool(page) and end_of(f"{page}{END_SUFFIX}", END_MARK_MAX_BYTES) == str(pid)


def crash_stacks(env: Mapping[str, str]) -> str:
    """What the fault handler of a worker with this environment wrote in a crash; "" if it did not crash."""
    page = env.get(PAGE_VARIABLE)
    if not page:
        return ""
    text = end_of(page + STACKS_SUFFIX, STACKS_MAX_BYTES)
    # The file also has stacks that were requested by a signal.
    begin = text.rfind("Fatal Python error")
    return text[begin:] if begin >= 0 else ""
