"""Write and read files safely in directories that others can write to.

Anyone who can write to a directory can put anything where we expect a file: a link to another file of the user's, a
pipe without a writer, a device, an endless file. So a write never opens the file that it replaces, and a read checks
the file type before the first byte. Writes are all or nothing.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = 0o600
"""The mode of a file that only its owner can read."""

NAME_PATTERN = r"[A-Za-z0-9_-]{1,64}"
"""The pattern of file names, without suffix, that others may choose: no separator, dot or invisible character."""

DRAFT_RANDOM_BYTES = 8
"""The random part of a draft's name, so that nobody can guess the name and create the file first."""

READ_BYTES = 1 << 20
"""The size of one read."""

REMOVED_MAX = 100_000
"""How many names `empty` removes at most: somebody may have made millions."""


DirectoryIdentity = tuple[int, int, int]
"""What makes a directory the same one as before: its device, its inode and its owner."""


class NotRegularError(OSError):
    """The path is not a regular file: a directory, pipe, device, socket, or a link that is not followed."""


def is_name(text: str) -> bool:
    """Whether `text`, which came from outside, is safe as a file name."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def write_whole(path: str, data: bytes, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Write `data` to `path`, all or nothing. Replaces an existing file; replaces a link instead of following it.

    With `durable`, the data is on disk when this returns and survives a machine crash.

    Raises:
        NotRegularError: `path` exists and is neither a file nor a link, so a file must not replace it.
        OSError: the file cannot be written; no draft is left behind.
    """
    parent, name = os.path.split(possible(path))
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    # Resolve all names below relative to this descriptor: the directory's path may point elsewhere a moment later.
    directory = os.open(parent or os.curdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_whole_in(directory, name, data, mode=mode, durable=durable)
    finally:
        os.close(directory)


def write_whole_in(directory: int, name: str, data: bytes, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """`write_whole`, to the file `name` in a directory that is given by its descriptor."""
    _check_replaceable(directory, name)
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


def open_append(path: str, mode: int = PRIVATE) -> int:
    """Open the file at `path` for appending, and create it if it is missing. Never blocks.

    Raises:
        NotRegularError: `path` is not a regular file.
        OSError: the file cannot be opened.
    """
    return _checked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, mode)


def open_regular(path: str, *, follow: bool = False) -> int:
    """Open the file at `path` for reading. Follows a link only with `follow`.

    Never blocks and reads nothing. Refuses a pipe without a writer, a device or a directory.

    Raises:
        NotRegularError: `path` is not a regular file.
        OSError: the file is missing or cannot be opened.
    """
    return _checked(path, os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW)


def open_regular_in(directory: int, name: str) -> int:
    """`open_regular`, of the file `name` in a directory that is given by its descriptor. Follows no link."""
    return _checked(name, os.O_RDONLY | os.O_NOFOLLOW, directory=directory)


def read_regular(path: str, max_bytes: int, *, follow: bool = False) -> bytes:
    """Read at most `max_bytes` from the file at `path`.

    Raises:
        NotRegularError: `path` is not a regular file.
        OSError: the file is missing or cannot be read.
    """
    fd = open_regular(path, follow=follow)
    try:
        return b"".join(_pieces(fd, max_bytes))
    finally:
        os.close(fd)


def is_regular(path: str) -> bool:
    """Whether `path` itself is a regular file, not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def other_owner(directory: str) -> int | None:
    """The owner of `directory`, unless that is this user or root. Another owner can forge what is in it."""
    try:
        owner = os.stat(directory).st_uid
    except (OSError, ValueError):
        return None
    return None if owner in (0, os.geteuid()) else owner


def directory_identity(path: str, *, follow: bool = False) -> DirectoryIdentity | None:
    """The identity of the directory at `path`, or None if there is none. Follows a link only with `follow`.

    The owner is part of it: once a directory is removed, its inode number may become another user's.
    """
    try:
        found = os.stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_uid) if stat.S_ISDIR(found.st_mode) else None


def is_below_another_owner(path: str) -> bool:
    """Whether the nearest existing directory above `path` belongs to neither this user nor root.

    Its owner can replace whatever is made in it.
    """
    parent = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(parent) and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    return other_owner(parent) is not None


def empty(directory: int) -> None:
    """Remove what somebody made in a directory, given by its descriptor.

    A directory can be deeper than Python's stack and than any path, so nested ones are moved up before they are
    removed. What cannot be removed is left, and so is what exceeds `REMOVED_MAX`.
    """
    try:
        names = _names(directory, REMOVED_MAX)
    except OSError:  # no descriptor is left, for example
        return
    seen = len(names)
    while names:
        name = names.pop()
        if _unlink(name, directory):
            continue
        with suppress(OSError):
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                inner = _names(below, REMOVED_MAX - seen)
                seen += len(inner)
                for each in inner:
                    if not _unlink(each, below):
                        moved = f".{os.urandom(DRAFT_RANDOM_BYTES).hex()}"
                        os.rename(each, moved, src_dir_fd=below, dst_dir_fd=directory)
                        names.append(moved)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=directory)


def remove_tree(path: str) -> None:
    """Remove a directory and what is in it, as far as that is possible. See `empty`."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            empty(fd)
        finally:
            os.close(fd)
        os.rmdir(path)


def _names(directory: int, count_max: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, count_max)]


def _unlink(name: str, directory: int) -> bool:
    """Remove a name that is no directory. False for a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        return False
    except OSError:
        pass
    return True


def _checked(path: str, flags: int, mode: int = PRIVATE, directory: int | None = None) -> int:
    """Open `path` only if it is a regular file. Without O_NONBLOCK, opening a pipe would block."""
    try:
        fd = os.open(possible(path), flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as error:
        # A socket, a pipe without a reader, a link that is not followed, or a directory opened for writing.
        is_link = error.errno == errno.ELOOP and flags & os.O_NOFOLLOW
        if is_link or error.errno in (errno.ENXIO, errno.ENODEV, errno.EISDIR):
            raise NotRegularError(errno.EINVAL, "is not a file", path) from None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise NotRegularError(errno.EINVAL, "is not a file", path)


def possible(path: str) -> str:
    """`path`, if a file can have that name; OSError otherwise. The system raises two kinds of ValueError."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "Impossible name", path)


def _check_replaceable(directory: int, name: str) -> None:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise NotRegularError(errno.EEXIST, "is not a file", name)


def _sync_names(directory: int) -> None:
    with suppress(OSError):  # the directory may be writable but not readable
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
