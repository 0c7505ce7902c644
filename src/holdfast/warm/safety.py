"""Whether a process can be forked after its imports, so that each copy behaves as if it had done them itself.

It can if the imports left nothing that copies would share or lose, and read nothing that differs between workers.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from contextlib import suppress

from holdfast import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

THREAD_END_WAIT_S = 1.0
"""How long a joined thread may take to leave the kernel."""

_MEMORY_DEVICES = 1
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_NOT_ALL_THERE = ("SigCgt", "SigIgn")

OWN_VARIABLES = frozenset(
    (
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"),
        *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS"),
        *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_TIMER_FILE", "HOLDFAST_GENERATION", "HOLDFAST_WORKER_PAGE"),
    )
)
"""The variables that a worker has and the template lacks."""


class Environment(os._Environ[str]):  # noqa: SLF001 - the class of os.environ
    """An ``os.environ`` that records access to variables which differ between workers."""

    asked: str

    def __getitem__(self, key: str) -> str:
        self._note(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: str) -> None:
        self._note(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._note(key)
        super().__delitem__(key)

    def _note(self, key: object) -> None:
        if key in OWN_VARIABLES and not self.asked:
            self.asked = str(key)


class Safety:
    """The state of the process before the imports. `problem` says which of their changes rules out a fork."""

    def __init__(self) -> None:
        self.fds: dict[int, bool] = {}
        """The descriptors that the imports left open and copies may have, and whether programs inherit them."""
        self._fds = _open_fds()
        self._handlers = _handlers()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._shared = _shared_memory()
        self._directory = os.stat(".")
        self._arguments = [*sys.argv]
        self._main = _main()
        self._temporary: list[str] = []
        self._mkdir = os.mkdir
        os.mkdir = self._make_directory
        self._environ = os.environ.__class__
        os.environ.asked = ""  # type: ignore[attr-defined]  # of `Environment`, its next class
        os.environ.__class__ = Environment

    def finish(self) -> None:
        """Stop recording: the imports are done."""
        os.mkdir = self._mkdir
        os.environ.__class__ = self._environ
        del os.environ.asked  # type: ignore[attr-defined]  # likewise

    def problem(self) -> str:
        """What the imports did, as the rest of a sentence; "" if a fork is still safe."""
        if os.environ.__class__ is not Environment:
            return "replaced os.environ"
        if name := os.environ.asked:
            return f"read {name}, which differs between workers"
        for has_happened, what in (
            (_has_threads, "started threads"),
            (_has_initialised_cuda, "initialised CUDA"),
            (_has_children, "started a process"),
            (lambda: _handlers() != self._handlers, "set signal handlers"),
            (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()) != self._mask, "blocked signals"),
            (_has_timers, "set a timer"),
            (lambda: _shared_memory() - self._shared, "made memory or locks that copies of the process would share"),
            (lambda: not os.path.samestat(os.stat("."), self._directory), "changed the working directory"),
            (lambda: sys.argv != self._arguments, "changed sys.argv"),
            (lambda: _main() != self._main, "changed __main__"),
            (self.temporary_directories, "made a temporary directory, which the first worker to end would remove"),
        ):
            if has_happened():
                return what
        return self._descriptors()

    def temporary_directories(self) -> list[str]:
        """The temporary directories that the imports made and did not remove."""
        return [path for path in self._temporary if os.path.isdir(path)]

    def _make_directory(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._mkdir(path, mode, dir_fd=dir_fd)
        if sys._getframe(1).f_globals.get("__name__") == "tempfile":  # noqa: SLF001 - the caller is what matters
            self._temporary.append(os.fsdecode(path))

    def _descriptors(self) -> str:
        for fd in _open_fds() - self._fds - self.fds.keys():
            status = os.fstat(fd)
            is_memory_device = stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == _MEMORY_DEVICES
            if not stat.S_ISREG(status.st_mode) and not is_memory_device:
                return f"left {os.readlink(procfs.descriptor(procfs.SELF, fd))} open"
            self.fds[fd] = os.get_inheritable(fd)
        return ""


def hidden_module(directory: str, unharmed: Iterable[str]) -> str:
    """A file of the program that shadows a module which was already imported from elsewhere; "" if there is none.

    `unharmed` are modules that exist before a program begins, so that it cannot shadow them.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return ""
    for entry in names:
        name, dot, _ = entry.partition(".")
        module = sys.modules.get(name)
        if module is None or name in unharmed:
            continue
        path = os.path.join(directory, entry)
        is_module = entry.endswith((".py", ".so", ".pyc")) if dot else _is_package(path)
        file = getattr(module, "__file__", None) or ""
        if is_module and not _is_same(file, path) and not file.startswith(path + os.sep):
            return path
    return ""


def _is_package(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in ("__init__.py", "__init__.pyc"))


def _is_same(one: str, other: str) -> bool:
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False


def _main() -> tuple[int, dict[str, int]]:
    """The identity of ``__main__`` and its contents."""
    main = sys.modules["__main__"]
    return id(main), {name: id(value) for name, value in vars(main).items()}


def _open_fds() -> set[int]:
    found = set()
    for fd in procfs.open_descriptors(procfs.SELF):
        with suppress(OSError):  # the descriptor of the listing itself
            os.fstat(fd)
            found.add(fd)
    return found


def _has_threads() -> bool:
    """Whether there are threads that a fork does not end. OpenBLAS, for one, ends its threads before a fork and
    restarts them on demand.
    """
    if not procfs.has_threads():
        return False
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return True
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about a fork with threads
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + THREAD_END_WAIT_S
    while procfs.has_threads():
        if time.monotonic() > deadline:
            return True
        os.sched_yield()
    return False


def _has_initialised_cuda() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _has_timers() -> bool:
    return any(signal.getitimer(which)[0] for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _handlers() -> dict[object, object]:
    """The signal handlers, of Python and of native code."""
    found: dict[object, object] = {int(signum): signal.getsignal(signum) for signum in signal.valid_signals()}
    ours = sum(1 << (signum - 1) for signum in signal.valid_signals())
    faulthandler = sys.modules.get("faulthandler")
    if faulthandler is not None and faulthandler.is_enabled():
        ours &= ~sum(1 << (signum - 1) for signum in _FAULTS)  # a worker sets them again
    status = procfs.status(procfs.SELF)
    found.update((name, status.bits(name) & ours) for name in _NOT_ALL_THERE)
    return found


def _shared_memory() -> set[str]:
    """The writable mappings that a copy would share."""
    with open("/proc/self/maps") as file:
        return {line for line in file if "w" in (modes := line.split(maxsplit=2)[1]) and "s" in modes}
