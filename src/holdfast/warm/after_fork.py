"""What a fresh process has of its own, given to a copy of one that has done its imports.

The environment, the standard streams, signals, files with a position of their own, random numbers and secrets that no
two processes share. The rest a fork of a process with one thread brings by itself.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))

SECRET_BYTES = 32
"""The size of the key that multiprocessing makes for a process."""

_ARGUMENTS_START, _ARGUMENTS_END = 45, 46  # in /proc/self/stat, counted after the name


class Changes:
    """What imports did to the environment: a program that imports the same has it, too."""

    __slots__ = ("gone", "new")

    def __init__(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        self.new = {name: value for name, value in after.items() if before.get(name) != value}
        self.gone = [name for name in before if name not in after]

    def applied_to(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in {**env, **self.new}.items() if name not in self.gone}


def freshen(env: Mapping[str, str], fds: Mapping[int, bool]) -> None:
    """Give this copy what it has of its own. `fds` are what the imports left open, and whether programs inherit it."""
    # One by one: what a library has set behind Python's back stays, as in a process that loaded it itself.
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
    """A description of its own: copies would share the position."""
    import fcntl

    with suppress(OSError):  # a file that may not be opened again is shared, as by any fork
        new = os.open(f"/proc/self/fd/{fd}", fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_CLOEXEC)
        with suppress(OSError):
            os.lseek(new, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(new, fd)
        os.close(new)


def _renew_stream(stream: Any, fd: int, mode: str) -> None:
    """Make a standard stream anew, as the interpreter does, for what the descriptor is now.

    It stays the same object: a module may have it.
    """
    if stream is None:
        return
    is_unbuffered = stream.write_through  # -u, which sys.flags does not say
    buffering = 0 if is_unbuffered and mode == "w" else -1
    binary: Any = open(fd, f"{mode}b", buffering=buffering, closefd=False)  # noqa: SIM115 - it stays
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
    """What the interpreter sets for itself when it starts. All others are as the keeper has them for its workers."""
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler = sys.modules.get("faulthandler")
    if faulthandler is not None and faulthandler.is_enabled():
        faulthandler.disable()
        faulthandler.enable()


def _seed() -> None:
    """Python's own generator is seeded anew by every fork. Those of torch's devices come when the devices do."""
    numpy_random: Any = sys.modules.get("numpy.random")
    torch: Any = sys.modules.get("torch")
    # Without one of them, or with something else in its place, there is nothing to seed.
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
        finalizer._pid = os.getpid()  # noqa: SLF001 - or it would not be called at the end
    logging: Any = sys.modules.get("logging")
    start = getattr(logging, "_startTime", None)  # what a log calls relative is relative to the start of the program
    if start is not None:
        logging._startTime = time.time_ns() if isinstance(start, int) else time.time()  # noqa: SLF001 - see above
    threading = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()  # noqa: SLF001 - a fork leaves that of the parent


def open_files() -> list[Any]:
    """File objects that may have something to write, of those that the garbage collector looks after."""
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]


def write_files(others: Sequence[Any]) -> None:
    """At the end of a program: have files written that nobody closed, and `others`.

    The interpreter does it for those that it destroys. It never destroys what was there before the copy was made, nor
    what is reachable from that.
    """
    for file in (*open_files(), *others):
        with suppress(Exception):  # closed, or without anything behind it
            file.flush()


def show_command(words: Sequence[str]) -> None:
    """What ps has to say of this process. A courtesy."""
    import ctypes

    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, size = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END]) - int(fields[_ARGUMENTS_START])
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        if 0 < len(text) <= size:
            ctypes.memmove(start, text.ljust(size, b"\0"), size)
