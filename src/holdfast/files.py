"""Files in places that somebody else may write to: written as a whole or not at all, read without surprises.

Whoever can write to a directory can put anything where we expect a file: a link to another file of the user's, a pipe
that nobody writes to, a device, a file without an end. So a file that is replaced is never opened, and a file that is
read is looked at before its first byte is taken.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = 0o600
"""The mode of a file that is for its user alone."""

NAME_PATTERN = r"[A-Za-z0-9_-]{1,64}"
"""What may become the name of a file, without its suffix, whoever chose it: no separator, no dot, nothing invisible."""

DRAFT_RANDOM_BYTES = 8
"""How much chance is in the name of a file that is not finished yet: nobody can guess it and be there first."""

READ_BYTES = 1 << 20
"""How much is read at a time."""


class NotRegularError(OSError):
    """Something else than a file is there: a directory, a pipe, a device, a socket, a link that is not followed."""


def is_name(text: str) -> bool:
    """Whether `text`, which somebody else chose, is fit to be the name of a file."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def write_whole(path: str, data: bytes, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Put `data` at `path`, whole or not at all. What was there is replaced, and a link is replaced, not followed.

    With `durable`, it is on the disk when this returns, so that it outlives a machine that stops now.

    Raises:
        NotRegularError: what is there is neither a file nor a link, so nothing that a file may replace.
        OSError: it cannot be written; nothing is left of the attempt then.
    """
    parent, name = os.path.split(_possible(path))
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    # All names below are looked up in this directory: its own name may lead elsewhere a moment later.
    directory = os.open(parent or os.curdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_replaceable(directory, name, path)
        draft = f".holdfast-{os.urandom(DRAFT_RANDOM_BYTES).hex()}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(draft, flags, mode, dir_fd=directory)
        try:
            try:
                _write_all(fd, data)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=directory)
            raise
        if durable:
            _sync_names(directory)
    finally:
        os.close(directory)


def open_append(path: str, mode: int = PRIVATE) -> int:
    """A descriptor for writing to the end of the file at `path`, which is made if it is not there. Never waits.

    Raises:
        NotRegularError: something else than a file is there.
        OSError: it cannot be opened.
    """
    return _checked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, mode)


def open_regular(path: str, *, follow: bool = False) -> int:
    """A descriptor for reading the file at `path`; a link is followed only if the caller says so.

    Never waits, and reads nothing: a pipe without a writer, a device or a directory is refused.

    Raises:
        NotRegularError: something else than a file is there.
        OSError: it cannot be opened, or is not there.
    """
    return _checked(path, os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW)


def read_regular(path: str, max_bytes: int, *, follow: bool = False) -> bytes:
    """What the file at `path` holds, `max_bytes` of it at most.

    Raises:
        NotRegularError: something else than a file is there.
        OSError: it cannot be read, or is not there.
    """
    fd = open_regular(path, follow=follow)
    try:
        return b"".join(_pieces(fd, max_bytes))
    finally:
        os.close(fd)


def is_regular(path: str) -> bool:
    """Whether there is a file at `path` itself, and not only something that leads to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def other_owner(directory: str) -> int | None:
    """The user that `directory` belongs to, if that is neither this process's nor root: what it says may be made up."""
    try:
        owner = os.stat(directory).st_uid
    except (OSError, ValueError):
        return None
    return None if owner in (0, os.geteuid()) else owner


def _checked(path: str, flags: int, mode: int = PRIVATE) -> int:
    """A descriptor of the file at `path`, and of nothing else. Without O_NONBLOCK, a pipe would hold us up."""
    try:
        fd = os.open(_possible(path), flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        # A socket, or a pipe that nobody reads; a link that is not followed; a directory that is to be written to.
        is_link = error.errno == errno.ELOOP and flags & os.O_NOFOLLOW
        if is_link or error.errno in (errno.ENXIO, errno.ENODEV, errno.EISDIR):
            raise NotRegularError(errno.EINVAL, "is not a file", path) from None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise NotRegularError(errno.EINVAL, "is not a file", path)


def _possible(path: str) -> str:
    """`path`, if a file can have that name. The system raises two kinds of ValueError otherwise."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "Impossible name", path)


def _check_replaceable(directory: int, name: str, path: str) -> None:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise NotRegularError(errno.EEXIST, "is not a file", path)


def _sync_names(directory: int) -> None:
    with suppress(OSError):  # a directory that may be written to, but not be read
        fd = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _pieces(fd: int, max_bytes: int) -> Iterator[bytes]:
    left = max_bytes
    while left > 0 and (piece := os.read(fd, min(left, READ_BYTES))):
        left -= len(piece)
        yield piece
