"""The module search path of this process, and the one for a program that it runs as a function.

``python -m holdfast`` puts the working directory first in ``sys.path``, where a ``select.py`` of the user's would
shadow the standard module. So holdfast moves the directory to the end. Functions get the original order back.
"""

from __future__ import annotations

import sys

_moved = ""


def put_directory_last() -> None:
    """Move the directory that ``-m`` put first to the end of the path. holdfast itself may be in it."""
    global _moved  # noqa: PLW0603 - the path belongs to the process, and so does its change
    if not sys.flags.safe_path and sys.path:
        _moved = sys.path.pop(0)
        sys.path.append(_moved)


def programs_path(path: list[str]) -> list[str]:
    """`path`, a copy of this process's, in the order that a program expects."""
    return [_moved, *path[:-1]] if _moved and path[-1:] == [_moved] else path
