"""Gives a forked copy what a fresh process has of its own.

That is the environment, the standard streams, signals, files with their own position, random numbers, and secrets that
no two processes share. The fork of a process with one thread copies everything else correctly.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import time
from contextlib import suppress

from holdfast import procfs
from holdfast.signals import set_as_interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))

SECRET_BYTES = 32
"""The size of the key that multiprocessing makes for a process."""


class Changes:
    """The changes that imports made to the environment: a program that does the same imports gets them too."""

    __slots__ = ("gone", "new")

    def __init__(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        self.new = {name: value for name, value in after.items() if before.get(name) != value}
        self.gone = [name for name in before if name not in after]

    def applied_to(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in {**env, **self.new}.items() if name not in self.gone}


def freshen(env: Mapping[str, str], fds: Mapping[int, bool]) -> None:
    """Make this copy fresh. `fds` are the descriptors that the imports left open, and whether programs inherit them."""
    # One by one: variables that a library set behind Python's back stay, as in a process that loaded it itself.
    os.environ.clear()
    os.environ.update(env)
    for fd, inheritable in fds.items():
        _open_again(fd)
        os.set_inheritable(fd, inheritable)
    for name, number, mode in STREAMS:
        _renew_stream(getattr(sys, f"__{name}__"), number, mode)
    _set_signals()
    _seed()
    _renew_identity()


def _open_again(fd: int) -> None:
    """Open the file again: copies would share the position of one description."""
    import fcntl

    with suppress(OSError):  # a file that cannot be reopened is shared, as after any fork
        new = os.open(procfs.descriptor(procfs.SELF, fd), fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_CLOEXEC)
        with suppress(OSError):
            os.lseek(new, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(new, fd)
        os.close(new)


def _renew_stream(stream: Any, fd: int, mode: str) -> None:
    """Reinitialize a standard stream as the interpreter does, for whatever the descriptor is now.

    It stays the same object: a module may hold a reference to it.
    """
    if stream is None:
        return
    is_unbuffered = stream.write_through  # -u, which sys.flags does not show
    buffering = 0 if is_unbuffered and mode == "w" else -1
    binary: Any = open(fd, f"{mode}b", buffering=buffering, closefd=False)  # noqa: SIM115 - stays open
    raw = binary if buffering == 0 else binary.raw
    raw.name = f"<{('stdin', 'stdout', 'stderr')[fd]}>"
    stream.__init__(
        binary,
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=not is_unbuffered and (raw.isatty() or stream is sys.__stderr__),
        write_through=is_unbuffered,
    )
    stream.mode = mode


def _set_signals() -> None:
    """Set the signals that the interpreter sets at its start. The keeper has set all others for its workers."""
    set_as_interpreter()
    faulthandler = sys.modules.get("faulthandler")
    if faulthandler is not None and faulthandler.is_enabled():
        faulthandler.disable()
        faulthandler.enable()


def _seed() -> None:
    """Reseed numpy and torch. Forks reseed Python's own generator; torch seeds a device when it initialises it."""
    numpy_random: Any = sys.modules.get("numpy.random")
    torch: Any = sys.modules.get("torch")
    # Either may be missing, or something else may have its name.
    with suppress(Exception):
        numpy_random.seed()
    with suppress(Exception):
        torch.default_generator.seed()


def _renew_identity() -> None:
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(SECRET_BYTES)
    util: Any = sys.modules.get("multiprocessing.util")
    for finalizer in list(getattr(util, "_finalizer_registry", {}).values()):
        finalizer._pid = os.getpid()  # noqa: SLF001 - otherwise it would not be called at the end
    logging: Any = sys.modules.get("logging")
    start = getattr(logging, "_startTime", None)  # relative times in a log count from the start of the program
    if start is not None:
        logging._startTime = time.time_ns() if isinstance(start, int) else time.time()  # noqa: SLF001 - no public name
    threading = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()  # noqa: SLF001 - a fork keeps the parent's id


def open_files() -> list[Any]:
    """The file objects that the garbage collector tracks and that may have unwritten data."""
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]


def write_files(others: Sequence[Any]) -> None:
    """At the end of a program: flush `others` and files that were never closed.

    The interpreter flushes the files that it destroys. It never destroys objects from before the fork, nor what is
    reachable from them.
    """
    for file in (*open_files(), *others):
        with suppress(Exception):  # closed, or its descriptor is
            file.flush()


def show_command(words: Sequence[str]) -> None:
    """Set the command line that ps shows for this process. Best effort."""
    import ctypes

    with suppress(OSError, ValueError, IndexError):
        place = procfs.stat(procfs.SELF).arguments
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        if 0 < len(text) <= len(place):
            ctypes.memmove(place.start, text.ljust(len(place), b"\0"), len(place))
