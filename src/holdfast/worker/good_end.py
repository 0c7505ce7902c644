"""Records that a Python program ended well, before the interpreter shuts down.

Native code may crash during interpreter shutdown: torch does when threads of a process group are still running. The
exit status is then a signal, although the program finished its work. So a program that ended well creates a file beside
the worker's page, as its last act before the shutdown.

A program ends well when its main module reaches the last line, or calls ``sys.exit()`` with nothing, None or 0. By
then, joined threads have ended, exit handlers have run without an exception, and the standard streams are flushed. An
end that cannot be told from a bad one counts as bad: ``raise SystemExit(0)``, ``python -c``, a directory run as a
program.

`hooks` executes this file, in any interpreter. Before 3.10, failed exit handlers go unnoticed, so nothing is recorded.
"""

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUFFIX = ".ended"
"""The suffix of the file beside the page; the file holds the process id."""

PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"

FIRST_VERSION = (3, 10)

_builtin_exit = sys.exit
_unraisable_hook: "Any" = sys.unraisablehook


class GoodEnd:
    """Detects a good end of this process's program. Created before the program's first line.

    `sees_main` says whether the interpreter itself runs the main module. If not, the code that runs it sets `has_come`.
    """

    def __init__(self, *, sees_main: bool) -> None:
        self._page = os.environ.get(PAGE_VARIABLE, "")
        self._pid = os.getpid()
        self._main_thread = _thread.get_ident()
        self._main: Any = sys.modules["__main__"]
        self._is_module = sees_main and sys.argv[:1] == ["-m"]
        self._is_script = sees_main and sys.argv[:1] not in (["-m"], ["-c"], [""], ["-"])
        self._run_module: Any = None
        self._exits = 0
        self.has_come = False
        """Whether the main module reached its last line, or sys.exit() with a good status ended the program."""
        self._handler_failed = False

    def watch(self) -> None:
        """Start: replace `sys.exit` and `sys.unraisablehook` by wrappers that behave the same."""
        if not self._page or sys.version_info < FIRST_VERSION or sys.unraisablehook is not sys.__unraisablehook__:
            return
        sys.unraisablehook = sys.__unraisablehook__ = self._unraisable
        if type(sys.exit) is type(len):  # still the built-in
            sys.exit = _exit_of(self)
        if self._is_module:
            self._watch_module()

    def _watch_module(self) -> None:
        """Wrap the function that runs the module in a cache written in C. The cache has a value once the function has
        returned, and adds no frame to tracebacks.
        """
        import runpy
        from _functools import _lru_cache_wrapper  # type: ignore[import-not-found]  # cheaper than `functools`

        function: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001 - what the interpreter calls
        self._run_module = _lru_cache_wrapper(function, None, False, _counts)
        runpy._run_module_as_main = self._run_module  # type: ignore[attr-defined]  # noqa: SLF001 - likewise

    def note(self, *, has_failed: bool) -> None:
        """Record a good end, from the last exit handler. `has_failed`: an exception was recorded."""
        has_come = self.has_come or self._has_run_out()
        # Drop our references, so that the main module's values are freed as usual.
        self._main = None
        if self._run_module is not None:
            self._run_module.cache_clear()
        if sys.unraisablehook != self._unraisable or os.getpid() != self._pid:
            return
        sys.unraisablehook = sys.__unraisablehook__ = _unraisable_hook
        if has_failed or self._handler_failed or not has_come:
            return
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # otherwise the interpreter flushes later, and a failure there is a bad exit status
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._page + SUFFIX, flags, 0o600)
        try:
            os.write(fd, b"%d" % self._pid)
        finally:
            os.close(fd)

    def _has_run_out(self) -> bool:
        """Whether the main module reached its last line.

        The interpreter removes `__file__` from a script that did, and from one that an exception ended, but only after
        it has obeyed a SystemExit.
        """
        if hasattr(sys, "last_value") or hasattr(sys, "last_exc"):
            return False
        if self._run_module is not None:
            return bool(self._run_module.cache_info())
        return self._is_script and "__file__" not in vars(self._main)

    def _unraisable(self, args: "Any") -> None:
        if "atexit callback" in (args.err_msg or ""):
            self._handler_failed = True
        _unraisable_hook(args)

    def leave(self, status: object) -> "BaseException | None":
        """The exception that `sys.exit(status)` raises for a good `status`; None for any other: the built-in raises."""
        self._exits += 1
        if status is not None and (type(status) is not int or status != 0):
            return None
        error = SystemExit() if status is None else SystemExit(status)
        if _thread.get_ident() == self._main_thread:
            error._leaving = _Leaving(self, self._exits)  # type: ignore[attr-defined]  # noqa: SLF001 - ours
        return error

    def left(self, exits: int) -> None:
        """The exception of call number `exits` was freed with no Python frame left in the main thread: the interpreter
        obeyed it.
        """
        if exits == self._exits and _thread.get_ident() == self._main_thread:
            self.has_come = True


class _Leaving:
    """Attached to a SystemExit, and freed with it."""

    __slots__ = ("_end", "_exits")

    def __init__(self, end: GoodEnd, exits: int) -> None:
        self._end = end
        self._exits = exits

    def __del__(self) -> None:
        if sys._getframe().f_back is None:  # noqa: SLF001 - called by the interpreter itself
            self._end.left(self._exits)

    def __reduce__(self) -> "tuple[type[object], tuple[()]]":
        return object, ()  # so that the exception can be pickled


def _exit_of(end: GoodEnd) -> "Any":
    def exit(status: object = None, /) -> None:  # noqa: A001 - the name of the original
        error = end.leave(status)
        if error is None:
            _builtin_exit(status)  # type: ignore[arg-type]  # any object, as the program passed it
        else:
            try:
                raise error
            finally:
                del error  # a reference cycle: its traceback holds this frame

    exit.__doc__ = _builtin_exit.__doc__
    exit.__module__, exit.__qualname__ = "sys", "exit"
    return exit


def _counts(_hits: int, _misses: int, _maxsize: object, size: int) -> int:
    return size
