"""Turns a copy of the template into the worker's program, as if an interpreter had been started with it.

The program finds its own ``sys.argv``, ``sys.path`` and ``__main__``. It also ends the same way: the same traceback and
exit code. The interpreter then shuts down as usual, with exit handlers.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, TracebackType
    from typing import Any

UNBUFFERED, MODULE = "-u", "-m"

_STDERR = 2

CANNOT_OPEN = 2
"""The exit code of an interpreter that cannot open its script."""


class Program:
    """The program that ``python words...`` runs, where the words are ``[-u] [-m] name arguments...``."""

    __slots__ = ("arguments", "is_module", "name")

    def __init__(self, words: Sequence[str]) -> None:
        left = list(words)
        while left[:1] == [UNBUFFERED]:
            left.pop(0)
        self.is_module = left[:1] == [MODULE]
        if self.is_module:
            left.pop(0)
        self.name = left[0] if left else ""
        self.arguments = left[1:]

    @property
    def path(self) -> str:
        """The absolute path of a script, a directory or an archive, not normalized otherwise."""
        if self.is_module or not self.name:
            return ""
        return os.path.join(os.getcwd(), self.name)

    @property
    def is_package_like(self) -> bool:
        """Whether it is a directory or an archive with a ``__main__``."""
        if not self.path or os.path.isdir(self.path):
            return bool(self.path)
        if os.path.isfile(self.path) and self.path.endswith(".py"):
            return False  # the usual case, which needs no import
        import pkgutil

        return pkgutil.get_importer(self.path) is not None

    @property
    def directory(self) -> str:
        """The first entry of ``sys.path``; "" for none."""
        if self.is_package_like:
            return self.path
        if sys.flags.safe_path or not self.name:
            return ""
        return os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.name))


def begin(program: Program) -> None:
    """Set ``sys.argv`` and ``__main__`` as they are before the first line of `program`.

    The template does it before the imports, so that they find them. The copy does it again: its arguments may differ,
    and its ``__main__`` must not be among the objects that the garbage collector has frozen.
    """
    import builtins

    sys.argv[:] = ["-m" if program.is_module else program.name, *program.arguments]
    has_annotations = "__annotations__" in vars(sys.modules["__main__"])
    main = sys.modules["__main__"] = type(sys)("__main__")
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main  # the name that multiprocessing uses in its children
    vars(main).update(__builtins__=builtins, __loader__=None, __spec__=None)
    if has_annotations:
        main.__annotations__ = {}
    if program.path and not program.is_package_like:
        from importlib.machinery import SourceFileLoader, SourcelessFileLoader

        kind = SourcelessFileLoader if program.path.endswith(".pyc") else SourceFileLoader
        vars(main).update(__file__=program.path, __cached__=None, __loader__=kind("__main__", program.path))


def become(program: Program, words: Sequence[str], hooks: CodeType | None) -> Callable[[], None]:
    """Become the interpreter that was started with `words`. Returns a function that runs `program`.

    `hooks` is the code of `holdfast.worker.hooks`.
    """
    display = sys.__excepthook__
    record, ran_out = _install(hooks)
    _forget_ourselves()
    sys.orig_argv[1:] = words
    begin(program)
    if program.directory:
        sys.path.insert(0, program.directory)
    return _Run(program, display, record, ran_out).run


def _forget_ourselves() -> None:
    here = os.path.dirname(os.path.dirname(__file__))
    for name in [name for name in sys.modules if name == "holdfast" or name.startswith("holdfast.")]:
        del sys.modules[name]
    for path in [path for path in sys.path_importer_cache if path == here or path.startswith(here + os.sep)]:
        del sys.path_importer_cache[path]


def _install(hooks: CodeType | None) -> tuple[Callable[[BaseException], None], Callable[[], None]]:
    """Install the hooks as sitecustomize does in a program: before the imports, which may have set hooks of their own.

    Returns two functions: one records an interrupt, the other that the last line was reached. The hooks themselves do
    that only if they can see that the interpreter called them.
    """
    nothing: tuple[Callable[[BaseException], None], Callable[[], None]] = (lambda _: None, lambda: None)
    if hooks is None:
        return nothing
    threading: Any = sys.modules.get("threading")
    theirs = (sys.excepthook, getattr(threading, "excepthook", None))
    sys.excepthook = sys.__excepthook__
    if threading is not None:
        threading.excepthook = threading.__excepthook__
    original = (sys.excepthook, getattr(threading, "excepthook", None))
    space: dict[str, Any] = {"__name__": "holdfast.worker.hooks", "__file__": hooks.co_filename}
    try:
        exec(hooks, space)  # noqa: S102 - a file of ours
        space["install"](is_program=True, sees_main=False)
    except Exception:  # noqa: BLE001 - a program must not fail because of hooks that only explain failures
        return nothing
    finally:
        if theirs[0] is not original[0]:
            sys.excepthook = theirs[0]
        if theirs[1] is not original[1]:
            threading.excepthook = theirs[1]

    def record(error: BaseException) -> None:
        if getattr(sys, "excepthook", None) is space["_uncaught"]:
            space["_record"](error)

    return record, space["ran_out"]


class _Run:
    """Runs a program from its first line to its end, as the interpreter does. Tracebacks omit our frames."""

    def __init__(
        self,
        program: Program,
        display: Callable[..., object],
        record: Callable[[BaseException], None],
        ran_out: Callable[[], None],
    ) -> None:
        self._program = program
        self._display = display
        self._record = record
        self._ran_out = ran_out

    def run(self) -> None:
        # One of our frames is below the program's: some function must call it.
        try:
            if self._program.is_module or self._program.is_package_like:
                import runpy

                name = self._program.name if self._program.is_module else "__main__"
                runpy._run_module_as_main(name, alter_argv=self._program.is_module)  # type: ignore[attr-defined]  # noqa: SLF001 - as Python does
            else:
                exec(self._code(), vars(sys.modules["__main__"]))  # noqa: S102 - runs the user's program
        except SystemExit:
            raise
        except BaseException as error:
            error.__traceback__ = _without_ours(error.__traceback__)
            is_interrupt = type(error) is KeyboardInterrupt
            # Record it here: the hook cannot tell this end from an exception that a program only displays.
            self._record(error)
            self._show(error)
            if is_interrupt:
                # Only the interpreter can end the process as the signal would have.
                sys.excepthook = lambda *_: None
                raise
        else:
            self._ran_out()
            return
        raise SystemExit(1)

    def _code(self) -> CodeType:
        path = self._program.path
        try:
            with io.open_code(path) as file:
                source = file.read()
        except OSError as error:
            _write(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
            raise SystemExit(CANNOT_OPEN) from None
        if path.endswith(".pyc"):
            loader: Any = sys.modules["__main__"].__loader__
            compiled: CodeType = loader.get_code("__main__")
            return compiled
        return compile(source, path, "exec", dont_inherit=True)

    def _show(self, error: BaseException) -> None:
        trace = error.__traceback__
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        if sys.version_info >= (3, 12):
            sys.last_exc = error
        hook = getattr(sys, "excepthook", None)
        if hook is None:
            _write("sys.excepthook is missing\n")
            self._display(type(error), error, trace)
            return
        try:
            hook(type(error), error, trace)
        except SystemExit:
            raise
        except BaseException as second:  # noqa: BLE001 - as the interpreter does
            _write("Error in sys.excepthook:\n")
            second.__context__ = None  # the interpreter would not have been in a handler
            second.__traceback__ = _without_ours(second.__traceback__)
            self._display(type(second), second, second.__traceback__)
            _write("\nOriginal exception was:\n")
            self._display(type(error), error, trace)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _write(text: str) -> None:
    """Write to stderr as the interpreter does: if sys.stderr fails, on a full disk for example, ignore it."""
    if getattr(sys, "stderr", None) is None:
        return
    try:
        sys.stderr.write(text)
    except Exception:  # noqa: BLE001 - it may be an object of the program's
        try:  # noqa: SIM105 - contextlib is an import
            os.write(_STDERR, text.encode("utf-8", "backslashreplace"))
        except OSError:
            pass
