"""What a process has left behind: the end of its stderr, the stacks of a native crash, the mark of a good end."""

from __future__ import annotations

import os

from holdfast.own_files import open_own
from holdfast.processes.progress_bars import last_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

END_MAX_BYTES = 16 * 1024
"""How much of the end of a log is returned."""

BAR_MAX_BYTES = 4 * 1024 * 1024
"""How far back the lines before a progress bar are searched for: over an hour of a bar with ten frames a second."""

STACKS_MAX_BYTES = 64 * 1024
"""How much of the stacks is read."""

STACKS_SUFFIX = ".stacks"
"""The file beside a worker's page to which its fault handler writes the stacks."""

END_SUFFIX = ".ended"
"""The file beside a worker's page that holds the process id of a program that ended well."""

END_MARK_MAX_BYTES = 32

PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"


def end_of(path: str, max_bytes: int = END_MAX_BYTES) -> str:
    """The end of a file as text; "" if it cannot be read, or is not our file: a worker may have put a pipe there, and
    another user a link.
    """
    return _end_bytes(path, max_bytes).decode("utf-8", "backslashreplace")


def end_of_log(path: str) -> str:
    """The end of a log as text, with only the last frame of each progress bar; "" as for `end_of`."""
    data = _end_bytes(path, END_MAX_BYTES)
    if b"\r" in data:
        data = last_frames(_end_bytes(path, BAR_MAX_BYTES))[-END_MAX_BYTES:]
    return data.decode("utf-8", "backslashreplace")


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


def _end_bytes(path: str, max_bytes: int) -> bytes:
    try:
        with open(open_own(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes)
    except OSError:
        return b""
