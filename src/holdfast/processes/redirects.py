"""Redirects a standard stream of this process to a file for a while: the output of Python and of C code."""

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
    """Inside the block, output to `std` ("stdout" or "stderr") goes to `to_file` instead.

    The descriptor itself is redirected, so the output of C code and of child processes goes there too. The file is
    truncated first. Blocks may be nested; the descriptor is restored however the block ends.

    If `sys.stdout` was replaced by an object that does not write to the descriptor, it is not affected.

    Raises:
        ValueError: `std` is not one of the two names.
        OSError: the file cannot be opened; nothing is redirected then.
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
    """A second descriptor of the same file; None if `descriptor` is closed."""
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _point_at_file(descriptor: int, path: str) -> None:
    # Append: both streams may go to one file, and must not overwrite each other.
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
    if opened == descriptor:  # it was closed, and open returns the lowest free number
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
    """Write out the buffers of Python and C, while the descriptor still points to where their content belongs."""
    for stream in (getattr(sys, std), getattr(sys, f"__{std}__")):
        with contextlib.suppress(AttributeError, ValueError):  # None, an incomplete stream object, or closed
            stream.flush()
    _flush_c()


def _flush_c() -> None:
    import ctypes

    ctypes.CDLL(None).fflush(None)
