"""Sleeps until one of several files changes.

The kernel notifies (inotify). If the platform has no inotify, or the user has reached the limit, every file counts as
changed once in `LOOK_PERIOD_S`.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import sys

from holdfast import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_PERIOD_S = 0.1
"""The polling interval for files without inotify."""

_READ_BYTES = 64 * 1024
_EVENT = struct.Struct("iIII")  # watch descriptor, mask, cookie, length of the name that follows

_IN_MODIFY = 0x0000_0002
_IN_ATTRIB = 0x0000_0004  # among others: a link to the file was removed
_IN_MOVED_TO = 0x0000_0080
_IN_CREATE = 0x0000_0100
_IN_MOVE_SELF = 0x0000_0800
_IN_ONESHOT = 0x8000_0000

_FILE = _IN_MODIFY | _IN_ATTRIB | _IN_MOVE_SELF
_DIRECTORY = _IN_CREATE | _IN_MOVED_TO

_UNWATCHED = -1
"""The watch descriptor of a lost event, so of everything that may have changed unnoticed."""


class FileChanges:
    """The files that one thread waits for. Only that thread calls the methods, except `interrupt`.

    Watches are one-shot: a key that `wait` returned is no longer watched. To miss nothing, watch a file again before
    reading it to its end. A file that is written without pause then costs its writer nothing, and its reader one
    wake-up each time it has caught up.

    `warn` is called once, with the reason, if the kernel cannot notify.
    """

    __slots__ = ("_inotify", "_interrupted", "_interruptor", "_keys", "_looking", "_poll", "_poll_interrupt", "_warn")

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._interrupted, self._interruptor = os.pipe()
        self._inotify: Inotify | None = None
        self._looking = False
        self._keys: dict[int, set[int]] = {}
        self._poll = select.poll()
        self._poll.register(self._interrupted, select.POLLIN)
        self._poll_interrupt = select.poll()
        self._poll_interrupt.register(self._interrupted, select.POLLIN)

    def watch_file(self, key: int, fd: int) -> None:
        """Have `wait` return `key` once the open file `fd` was written to, truncated, renamed or removed."""
        try:
            self._watch(key, procfs.descriptor(procfs.SELF, fd), _FILE)
        except OSError as error:
            self._look_instead(key, error)

    def watch_creation(self, key: int, path: str) -> None:
        """Have `wait` return `key` once `path`, which does not exist, may exist.

        It may have been created before this returns.
        """
        watched = None
        while (directory := _nearest_directory(path)) != watched:
            try:
                self._watch(key, directory, _DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
                continue
            except OSError as error:
                self._look_instead(key, error)
            watched = directory

    def wait(self) -> set[int]:
        """Sleep until something changes or `interrupt` is called. Returns the keys of what may have changed."""
        self._poll.poll(LOOK_PERIOD_S * 1000 if self._looking else None)
        if self._inotify is None:
            return self._take_all()
        fired = self._inotify.read()
        if _UNWATCHED in fired:
            return self._take_all()
        # A watch that fired is also reported as removed. If it was renewed in between, that may be the removal of the
        # renewed watch; its key is then registered, and counts as changed.
        return set().union(*(self._keys.pop(watch, ()) for watch in fired))

    def pause(self, seconds: float) -> None:
        """Sleep that long whatever changes, unless `interrupt` was called."""
        self._poll_interrupt.poll(seconds * 1000)

    def interrupt(self) -> None:
        """End the current and all future waits. Any thread may call this, and more than once."""
        os.write(self._interruptor, b"\0")

    def close(self) -> None:
        os.close(self._interrupted)
        os.close(self._interruptor)
        self._close_inotify()

    def _watch(self, key: int, path: str, mask: int) -> None:
        if self._looking:
            watch = _UNWATCHED
        else:
            if self._inotify is None:
                self._inotify = Inotify()
                self._poll.register(self._inotify.fd, select.POLLIN)
            watch = self._inotify.watch_once(path, mask)
        self._keys.setdefault(watch, set()).add(key)

    def _look_instead(self, key: int, error: OSError) -> None:
        self._looking = True
        self._close_inotify()
        self._keys.setdefault(_UNWATCHED, set()).add(key)
        self._warn(
            f"the kernel cannot report file changes ({error.strerror}): polling every {LOOK_PERIOD_S} s instead; see "
            "the limits in /proc/sys/fs/inotify"
        )

    def _close_inotify(self) -> None:
        if self._inotify is not None:
            self._poll.unregister(self._inotify.fd)
            self._inotify.close()
            self._inotify = None

    def _take_all(self) -> set[int]:
        keys: set[int] = set().union(*self._keys.values())
        self._keys.clear()
        return keys


class Inotify:
    """The inotify system calls.

    Raises:
        OSError: the platform has no inotify, or the user has reached the limit.
    """

    __slots__ = ("_libc", "fd")

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch_once(self, path: str, mask: int) -> int:
        """Have `read` report the next event of `mask` on `path`, as the number that this returns."""
        return self._checked(self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask | _IN_ONESHOT))

    def read(self) -> set[int]:
        """The numbers of the watches that had events."""
        try:
            events = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return set()
        watches, at = set(), 0
        while at < len(events):
            watch, _, _, name_length = _EVENT.unpack_from(events, at)
            watches.add(watch)
            at += _EVENT.size + name_length
        return watches

    def close(self) -> None:
        os.close(self.fd)

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            import ctypes

            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result


def _nearest_directory(path: str) -> str:
    """The directory of `path`, or its nearest ancestor that exists."""
    directory = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    return directory
