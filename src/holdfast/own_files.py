"""Read and write our own files at paths that others may have taken: find whose links and directories are on the way.

A clean-up of a directory that all can write to may remove a directory of ours that is in use. Then another user can
make the same path again: with a link to any file of ours at its end, or with a file for us to believe. So a path is
walked name by name, each one relative to the directory before it, which is held open.

- A link is followed if it belongs to this user or root, and not everybody could have moved it there.
- The last directory must belong to this user or root. One on the way may be anybody's, because people work in the
  directories of their groups: without a link of his own, its owner leads us only to directories of ours.
- A file in a directory that all can write to must belong to this user or root.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from holdfast.files import open_regular_in, possible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

LINKS_MAX = 40
"""How many links a path may lead through, as for the kernel."""

_PROC = "/proc"
_UNMAPPED = "/proc/sys/kernel/overflowuid"
_MAPPED = "/proc/self/uid_map"
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignError(PermissionError):
    """The path leads through another user's link, or to another user's directory or file."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.EACCES, f"another user's {what} is in its place", path)


class Place:
    """Where a file is: the descriptor of its `directory`, and its `name` there. Close it.

    `name` is a link only if that leads to something without a path, as /dev/stderr may; then `is_process` is True.
    """

    __slots__ = ("directory", "is_process", "is_public", "name", "path")

    def __init__(self, path: str, directory: int, name: str, *, is_public: bool, is_process: bool) -> None:
        self.path = path
        self.directory = directory
        self.name = name
        self.is_public = is_public
        self.is_process = is_process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.directory)

    def check(self, fd: int) -> None:
        """Check the file that was opened here.

        Raises:
            ForeignError: in a directory that all can write to, it belongs to another user.
        """
        if self.is_public and not _is_ours(os.fstat(fd).st_uid):
            raise ForeignError(self.path, "file")


def find(path: str, *, make: bool = False) -> Place:
    """The place of the file that `path` means. Missing directories are made with `make`.

    Raises:
        ForeignError: the path leads through another user's link, or to another user's directory; with `make`, the last
            directory that exists is another user's.
        OSError: a directory is missing, or cannot be opened or made.
    """
    walk = _Walk(possible(path))
    try:
        return walk.to_the_end(make=make)
    except BaseException:
        os.close(walk.directory)
        raise


def open_own(path: str) -> int:
    """Open the file at `path` for reading. Never blocks.

    Raises:
        ForeignError: another user could have put it there.
        NotRegularError: it is not a regular file.
        OSError: the file is missing or cannot be opened.
    """
    with find(path) as place:
        fd = open_regular_in(place.directory, place.name)
        try:
            place.check(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


class _Walk:
    """The way to a file: the directory that was reached, and the names that are left."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._names = _names(path)
        self._links = 0
        self._is_public = False
        """Whether all can write to a directory since the root. What is below it may have been put there by anybody."""
        self.directory = os.open("/" if path.startswith("/") else os.curdir, _DIRECTORY)
        self._look()

    def to_the_end(self, *, make: bool) -> Place:
        if not self.path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        while self._names:
            name = self._names.pop()
            is_process = self._is_process(name)
            if is_process or not self._follow(name):
                if not self._names:
                    if not self._is_ours:
                        raise ForeignError(self.path, "directory")
                    return Place(
                        self.path, self.directory, name, is_public=self._is_writable_by_all(), is_process=is_process
                    )
                self._enter(name, make=make)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)

    def _look(self) -> None:
        self._status = os.fstat(self.directory)
        self._is_ours = _is_ours(self._status.st_uid) or (not self._is_public and _is_unmapped(self._status.st_uid))
        self._is_public = self._is_public or self._is_writable_by_all()

    def _is_writable_by_all(self) -> bool:
        return bool(self._status.st_mode & stat.S_IWOTH)

    def _go_to(self, directory: int) -> None:
        os.close(self.directory)
        self.directory = directory
        self._look()

    def _enter(self, name: str, *, make: bool) -> None:
        try:
            self._go_to(os.open(name, _DIRECTORY, dir_fd=self.directory))
        except FileNotFoundError:
            if not make:
                raise
            if not self._is_ours:
                raise ForeignError(self.path, "directory") from None
            with suppress(FileExistsError):  # another worker has made it meanwhile
                os.mkdir(name, dir_fd=self.directory)
            self._go_to(os.open(name, _DIRECTORY, dir_fd=self.directory))

    def _follow(self, name: str) -> bool:
        """Whether the name is that of a link. Its target is gone to next.

        The kernel refuses other users' links in /tmp, too, but only where `fs.protected_symlinks` is set.
        """
        try:
            owner = os.stat(name, dir_fd=self.directory, follow_symlinks=False).st_uid
            target = os.readlink(name, dir_fd=self.directory)
        except OSError:  # it is missing, or no link
            return False
        is_movable = self._is_writable_by_all() and not self._status.st_mode & stat.S_ISVTX
        if is_movable or not (_is_ours(owner) or (not self._is_public and _is_unmapped(owner))):
            raise ForeignError(self.path, "link")
        self._links += 1
        if self._links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)
        self._names += _names(target)
        if target.startswith("/"):
            self._is_public = False
            self._go_to(os.open("/", _DIRECTORY))
        return True

    def _is_process(self, name: str) -> bool:
        """Whether the name is that of a process's own pipe, socket or terminal: a link whose text is no path."""
        if self._names or self._status.st_dev != _device(_PROC):
            return False
        try:
            mode = os.stat(name, dir_fd=self.directory).st_mode
        except OSError:
            return False
        return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _names(path: str) -> list[str]:
    """The names in a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _is_ours(owner: int) -> bool:
    return owner in (0, os.geteuid())


def _is_unmapped(owner: int) -> bool:
    """Whether `owner` stands for all users without a number here: in a container without root rights, root is one."""
    try:
        with open(_UNMAPPED) as file:
            if owner != int(file.read()):
                return False
        with open(_MAPPED) as file:
            ranges = [tuple(map(int, line.split())) for line in file]
    except (OSError, ValueError):
        return False
    return not any(first <= owner < first + count for first, _, count in ranges)


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except OSError:
        return -1
