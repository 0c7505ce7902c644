"""Send a standard stream of this process to a file for a while: what Python prints, and what C prints."""

from __future__ import annotations

import contextlib
import functools
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DESCRIPTORS = {"stdout": 1, "stderr": 2}


@contextlib.contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """Inside the block, what goes to `std` ("stdout" or "stderr") goes to `to_file` instead.

    It is the descriptor that is redirected, so the output of C code and of child processes goes there too.
    The file is emptied first. Blocks may be nested; the descriptor is put back however the block ends.

    A `sys.stdout` that someone replaced by an object that does not write to the descriptor goes on as before.

    Raises:
        ValueError: `std` is not one of the two names.
        OSError: the file cannot be opened; nothing was redirected then.
    """
    if std not in _DESCRIPTORS:
        raise ValueError(f"unknown standard stream {std!r}; expected one of {', '.join(map(repr, _DESCRIPTORS))}")
    descriptor = _DESCRIPTORS[std]
    _flush(std)
    before = _duplicate(descriptor)
    try:
        _point_at_file(descriptor, to_file)
        try:
            yield
        finally:
            try:
                _flush(std)
            finally:
                _put_back(descriptor, before)
    finally:
        if before is not None:
            os.close(before)


redirect_stdout = functools.partial(redirect, "stdout")
redirect_stderr = functools.partial(redirect, "stderr")


def _duplicate(descriptor: int) -> int | None:
    """A second descriptor of the same file, None when `descriptor` is closed."""
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _point_at_file(descriptor: int, path: str) -> None:
    # Appending, because the two streams may be sent to one file and must not write over each other.
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
    if opened == descriptor:  # it was closed, and open takes the lowest that is free
        os.set_inheritable(descriptor, True)
        return
    try:
        os.dup2(opened, descriptor)
    finally:
        os.close(opened)


def _put_back(descriptor: int, before: int | None) -> None:
    if before is None:
        os.close(descriptor)
    else:
        os.dup2(before, descriptor)


def _flush(std: str) -> None:
    """Hand what Python and C still hold back to the descriptor, while it points where that belongs."""
    for stream in (getattr(sys, std), getattr(sys, f"__{std}__")):
        with contextlib.suppress(AttributeError, ValueError):  # None, not a whole stream, or closed
            stream.flush()
    _flush_c()


def _flush_c() -> None:
    import ctypes

    ctypes.CDLL(None).fflush(None)
