"""Where this process looks for modules, and where a program that it runs as a function would.

``python -m holdfast`` has the working directory first in ``sys.path``, and a ``select.py`` there is somebody's program
and none of ours. So the directory is put last, and functions get the path back as it was.
"""

from __future__ import annotations

import sys

_moved = ""


def put_directory_last() -> None:
    """Look into the directory that ``-m`` has put first only for what is nowhere else: holdfast itself, perhaps."""
    global _moved  # noqa: PLW0603 - the path is the process's, and so is what became of it
    if not sys.flags.safe_path and sys.path:
        _moved = sys.path.pop(0)
        sys.path.append(_moved)


def programs_path(path: list[str]) -> list[str]:
    """`path`, a copy of this process's, as a program would have it."""
    return [_moved, *path[:-1]] if _moved and path[-1:] == [_moved] else path
