"""Whether a Python program has ended well, noted before the interpreter is taken down.

Native code may crash while the interpreter ends: torch does so when threads of a process group are still at work. The
exit status is then a signal, although the program has done all it had to do. So a program that ended well leaves a file
beside the worker's page, as the last thing before the interpreter goes.

A good end is the last line of the main module, or ``sys.exit()`` with nothing, None or 0. Threads that are waited for
have ended by then, exit handlers have run without an exception, and the standard streams are written. Whatever cannot
be told from a bad end counts as bad: ``raise SystemExit(0)``, a program of ``python -c``, a directory.

`hooks` executes this file, in any interpreter. Before 3.10 nobody hears of exit handlers that fail: nothing is noted.
"""

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUFFIX = ".ended"
"""The suffix of a file beside the page that holds the process identifier."""

PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"

FIRST_VERSION = (3, 10)

_builtin_exit = sys.exit
_unraisable_hook: "Any" = sys.unraisablehook


class GoodEnd:
    """Watches for the end of this process's program, from before its first line.

    `sees_main` is whether the interpreter itself runs the main module. If not, the code that runs it sets `has_come`.
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
        """Whether the main module's last line was run, or sys.exit() with a good status has ended the program."""
        self._handler_failed = False

    def watch(self) -> None:
        """Begin. The program finds another `sys.exit` and `sys.unraisablehook`, which do what they always do."""
        if not self._page or sys.version_info < FIRST_VERSION or sys.unraisablehook is not sys.__unraisablehook__:
            return
        sys.unraisablehook = sys.__unraisablehook__ = self._unraisable
        if type(sys.exit) is type(len):  # nobody has replaced it
            sys.exit = _exit_of(self)
        if self._is_module:
            self._watch_module()

    def _watch_module(self) -> None:
        """A cache in C around the function that runs the module: it has a value once that has returned, and is no
        frame in any traceback.
        """
        import runpy
        from _functools import _lru_cache_wrapper  # type: ignore[import-not-found]

        function: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001 - what the interpreter calls
        self._run_module = _lru_cache_wrapper(function, None, False, _counts)
        runpy._run_module_as_main = self._run_module  # type: ignore[attr-defined]  # noqa: SLF001 - likewise

    def note(self, *, has_failed: bool) -> None:
        """In the last exit handler: leave word of a good end. `has_failed` is whether an exception was recorded."""
        has_come = self.has_come or self._has_run_out()
        # The values of the main module go when nobody holds them any more.
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
                stream.flush()  # or the interpreter would fail at it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._page + SUFFIX, flags, 0o600)
        try:
            os.write(fd, b"%d" % self._pid)
        finally:
            os.close(fd)

    def _has_run_out(self) -> bool:
        """Whether the main module came to its last line. The interpreter takes `__file__` away from a script that has,
        and from one that an exception has ended, but not before it obeys a SystemExit.
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
        """What `sys.exit(status)` is to raise for a good status. Any other is for the interpreter's own function."""
        self._exits += 1
        if status is not None and (type(status) is not int or status != 0):
            return None
        error = SystemExit() if status is None else SystemExit(status)
        if _thread.get_ident() == self._main_thread:
            error._leaving = _Leaving(self, self._exits)  # type: ignore[attr-defined]  # noqa: SLF001 - ours
        return error

    def left(self, exits: int) -> None:
        """The exception of the call with this number is gone, and no frame of Python is left in the main thread: the
        interpreter has obeyed it.
        """
        if exits == self._exits and _thread.get_ident() == self._main_thread:
            self.has_come = True


class _Leaving:
    """Goes when the exception goes that it belongs to."""

    __slots__ = ("_end", "_exits")

    def __init__(self, end: GoodEnd, exits: int) -> None:
        self._end = end
        self._exits = exits

    def __del__(self) -> None:
        if sys._getframe().f_back is None:  # noqa: SLF001 - called by the interpreter and by nobody in between
            self._end.left(self._exits)

    def __reduce__(self) -> "tuple[type[object], tuple[()]]":
        return object, ()  # an exception can be pickled


def _exit_of(end: GoodEnd) -> "Any":
    def exit(status: object = None, /) -> None:  # noqa: A001 - the name that it has
        error = end.leave(status)
        if error is None:
            _builtin_exit(status)  # type: ignore[arg-type]
        else:
            try:
                raise error
            finally:
                del error  # its traceback has this frame, which would keep it alive

    exit.__doc__ = _builtin_exit.__doc__
    exit.__module__, exit.__qualname__ = "sys", "exit"
    return exit


def _counts(_hits: int, _misses: int, _maxsize: object, size: int) -> int:
    return size
