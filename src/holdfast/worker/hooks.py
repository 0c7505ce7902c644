"""What a Python worker has from its first moment: it leaves word of how it ends, without being asked.

- A native crash writes the stacks of all threads into a file beside the worker's page, and so does a signal to a
  worker that lives (`STACKS_SIGNAL_OFFSET`).
- An exception that nobody catches, in the main thread or another, goes into the error file. What is printed stays
  what it was.
- torch may use a store of the program's own beside the agent's (`own_store`).
- A program that ended well says so, before the interpreter is taken down (`good_end`).

`startup/sitecustomize.py` executes this file without importing it, in any interpreter since 3.8. It costs a program a
few system calls and two modules that are built into the interpreter; all else is paid by one that fails.
"""

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import faulthandler
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import ExceptHookArgs
    from types import TracebackType
    from typing import Any

STACKS_SUFFIX = ".stacks"
PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"

STACKS_SIGNAL_OFFSET = 12
"""The signal that asks for the stacks is SIGRTMIN plus this."""

TORCH_RENDEZVOUS = "torch.distributed.rendezvous"

FIRST_DESCRIPTOR = 200
"""The file of stacks is open at the first free number from here, so that a program's own descriptors begin at 3."""

LAST_DESCRIPTOR = 220

_STDERR = 2
_NO_NAME = "without a name"
_FIRST_FRAMES = ("<module>", "_run_module_as_main")
_lock = _thread.RLock()
_pid = 0
_main_thread = 0
_last: "BaseException | None" = None
_written: "dict[str, Any]" = {}
_has_failed = False
_end: "Any" = None
_main_hook = sys.excepthook
_thread_hook: "Any" = _thread._excepthook  # noqa: SLF001 - there since 3.8


def install(*, is_program: bool, sees_main: bool = True) -> None:
    """From here on, this process leaves word of how it ends.

    One that `is_program` has exceptions that reach the interpreter itself. A function is called by somebody who
    catches them. `sees_main` is whether the interpreter runs the main module; who runs it otherwise calls `ran_out`.
    """
    global _pid, _main_thread, _end  # noqa: PLW0603 - what is installed here is the process's, not an object's
    _pid, _main_thread = os.getpid(), _thread.get_ident()
    _dump_stacks(_stacks_file())
    _watch_threads()
    if is_program:
        # Both, so that the question whether somebody replaced the hook has the same answer as always.
        sys.excepthook = sys.__excepthook__ = _uncaught
        atexit.register(_at_exit)
        _end = _execute("good_end")["GoodEnd"](sees_main=sees_main)
        _end.watch()
    _watch_torch()


def ran_out() -> None:
    """The main module has come to its last line, where the interpreter cannot see that."""
    if _end is not None:
        _end.has_come = True


def _dump_stacks(fd: int) -> None:
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=True)
    faulthandler.register(_signal.SIGRTMIN + STACKS_SIGNAL_OFFSET, file=fd, all_threads=True, chain=False)


def _stacks_file() -> int:
    """A descriptor for the stacks: of the file beside the page, or else stderr."""
    page = os.environ.get(PAGE_VARIABLE)
    if not page:
        return _STDERR
    try:
        opened = os.open(page + STACKS_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return _STDERR
    try:
        # It lies in memory, and a program that finds no more of that may crash just for this. So a first page is taken
        # while there is one.
        os.write(opened, b"\n")
    except OSError:
        os.close(opened)
        return _STDERR
    for fd in range(FIRST_DESCRIPTOR, LAST_DESCRIPTOR):
        try:
            os.fstat(fd)
        except OSError:
            try:
                os.dup2(opened, fd, inheritable=False)
            except OSError:  # beyond the limit of this process
                break
            os.close(opened)
            return fd
    return opened


def _watch_threads() -> None:
    global _thread_hook  # noqa: PLW0603 - see above
    threading: Any = sys.modules.get("threading")
    if threading is None:
        _thread._excepthook = _uncaught_in_thread  # noqa: SLF001 - what `threading` will begin with
    else:
        if threading.excepthook is threading.__excepthook__:
            threading.__excepthook__ = _uncaught_in_thread
        _thread_hook = threading.excepthook
        threading.excepthook = _uncaught_in_thread


def _watch_torch() -> None:
    """Programs of torch may use a store of their own beside the agent's: see `own_store`."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("HOLDFAST_HOOKS") == "0":
        return
    agent_port = os.environ.get("MASTER_PORT", "")
    module = sys.modules.get(TORCH_RENDEZVOUS)
    if module is None:
        sys.meta_path.insert(0, _TorchFinder(agent_port))
    else:
        _execute("own_store")["adjust"](module, agent_port)


class _TorchFinder:
    """Waits among the finders of modules for the import of torch's rendezvous, and is gone then."""

    def __init__(self, agent_port: str) -> None:
        self._agent_port = agent_port

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":  # noqa: ARG002 - of every finder
        if name != TORCH_RENDEZVOUS:
            return None
        sys.meta_path.remove(self)
        try:
            return _execute("own_store")["spec_of"](name, path, self._agent_port)
        except Exception:  # noqa: BLE001 - then torch is imported as always
            return None


def _uncaught(kind: "type[BaseException]", value: BaseException, traceback: "TracebackType | None") -> None:
    if _thread.get_ident() != _main_thread:
        _record(value, _name_of_thread())
    elif kind is not KeyboardInterrupt:
        if _is_the_end():
            _record(value)
    elif sys._getframe().f_back is None:  # noqa: SLF001 - called by the interpreter and by nobody in between
        _record(value)
        _set_interrupted()
    _main_hook(kind, value, traceback)


def _is_the_end() -> bool:
    """Whether the interpreter called the hook, or another hook before it, and not a program that goes on and only
    wants an exception shown: then the program's first frame is still there.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - there is no other way to know
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name not in _FIRST_FRAMES


def _name_of_thread() -> str:
    threading: Any = sys.modules.get("threading")
    return (threading.current_thread().name if threading else "") or _NO_NAME


def _uncaught_in_thread(args: "ExceptHookArgs") -> None:
    _record(args.exc_value, getattr(args.thread, "name", "") or _NO_NAME)
    _thread_hook(args)


def _at_exit() -> None:
    """The exception that ended a program whose own hook took our place."""
    exc = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if type(exc) is not KeyboardInterrupt and getattr(sys, "excepthook", None) is not _uncaught:
        _record(exc)
    if _end is not None:
        try:  # noqa: SIM105 - contextlib is an import
            _end.note(has_failed=_has_failed)
        except Exception:  # noqa: BLE001, S110 - what cannot be told counts as a bad end
            pass


def _set_interrupted() -> None:
    """Have the process end with SIGINT, as every interrupted program does. The interpreter has made a note of it, but
    whoever evaluates a text, and some imports do, takes it back.
    """
    try:  # noqa: SIM105 - contextlib is an import
        exec("raise KeyboardInterrupt", {})  # noqa: S102 - see above
    except KeyboardInterrupt:
        pass


def _record(exc: "BaseException | None", thread: str = "") -> None:
    """Put an exception into the error file. Whatever goes wrong with that, stderr has it anyway."""
    global _last, _has_failed  # noqa: PLW0603 - see above
    # A forked child has the hooks, too, but its end is its parent's business.
    if exc is None or exc is _last or isinstance(exc, SystemExit) or os.getpid() != _pid:
        return
    _has_failed = True
    try:
        with _lock:
            if not thread:
                _last = exc
            namespace = _execute("own_imports")
            with namespace["OwnImports"](os.path.dirname(os.path.dirname(os.path.dirname(__file__)))):
                # A name and not an import statement: `errors` is a layer above, and part of no program that goes well.
                __import__("holdfast.errors.uncaught")
                sys.modules["holdfast.errors.uncaught"].record_uncaught(exc, thread, _written)
    except BaseException:  # noqa: BLE001, S110 - nothing may come between an exception and its hook
        pass


def _execute(module: str) -> "dict[str, Any]":
    """A file beside this one, not as a module of the program's."""
    from _frozen_importlib_external import SourceFileLoader

    name, path = "holdfast.worker." + module, os.path.join(os.path.dirname(__file__), module + ".py")
    namespace: dict[str, Any] = {"__name__": name, "__file__": path}
    code: Any = SourceFileLoader(name, path).get_code(name)
    exec(code, namespace)  # noqa: S102 - a file of ours
    return namespace
