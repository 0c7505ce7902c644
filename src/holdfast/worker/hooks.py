"""The hooks that record how a Python worker ends. They are installed before its first line.

- A native crash writes the stacks of all threads to a file beside the worker's page. So does a signal to a living
  worker (`STACKS_SIGNAL_OFFSET`).
- An uncaught exception, in the main thread or another, goes into the error file. The printed traceback stays the same.
- torch can use a store of the program's own beside the agent's (`own_store`).
- A program that ended well records that before the interpreter shuts down (`good_end`).

`startup/sitecustomize.py` executes this file without importing it, in any interpreter since 3.8. It costs a program a
few system calls and two modules that are built into the interpreter. Only a program that fails pays for the rest.
"""

import _signal  # type: ignore[import-not-found]  # cheaper than `signal`, which makes enums
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
"""The signal that requests the stacks is SIGRTMIN plus this."""

TORCH_RENDEZVOUS = "torch.distributed.rendezvous"

FIRST_DESCRIPTOR = 200
"""Where to start looking for a descriptor for the stacks file, so that a program's own descriptors begin at 3."""

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
_thread_hook: "Any" = _thread._excepthook  # noqa: SLF001 - exists since 3.8


def install(*, is_program: bool, sees_main: bool = True) -> None:
    """Install the hooks in this process.

    With `is_program`, uncaught exceptions reach the interpreter itself. Without it, the worker is a function, whose
    caller catches them. `sees_main` says whether the interpreter runs the main module; if not, the code that runs it
    calls `ran_out`.
    """
    global _pid, _main_thread, _end  # noqa: PLW0603 - hooks belong to the process, not to an object
    _pid, _main_thread = os.getpid(), _thread.get_ident()
    _dump_stacks(_stacks_file())
    _watch_threads()
    if is_program:
        # Both, so that a program that compares the two still finds them equal.
        sys.excepthook = sys.__excepthook__ = _uncaught
        atexit.register(_at_exit)
        _end = _execute("good_end")["GoodEnd"](sees_main=sees_main)
        _end.watch()
    _watch_torch()


def ran_out() -> None:
    """Record that the main module reached its last line, where the interpreter cannot see it."""
    if _end is not None:
        _end.has_come = True


def _dump_stacks(fd: int) -> None:
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=True)
    faulthandler.register(_signal.SIGRTMIN + STACKS_SIGNAL_OFFSET, file=fd, all_threads=True, chain=False)


def _stacks_file() -> int:
    """A descriptor for the stacks: the file beside the page, else stderr."""
    page = os.environ.get(PAGE_VARIABLE)
    if not page:
        return _STDERR
    try:
        opened = os.open(page + STACKS_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return _STDERR
    try:
        # Pre-allocated: the file is in memory, and the crash being recorded may itself be out-of-memory.
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
            except OSError:  # above this process's limit
                break
            os.close(opened)
            return fd
    return opened


def _watch_threads() -> None:
    global _thread_hook  # noqa: PLW0603 - see `install`
    threading: Any = sys.modules.get("threading")
    if threading is None:
        _thread._excepthook = _uncaught_in_thread  # noqa: SLF001 - `threading` will start with it
    else:
        if threading.excepthook is threading.__excepthook__:
            threading.__excepthook__ = _uncaught_in_thread
        _thread_hook = threading.excepthook
        threading.excepthook = _uncaught_in_thread


def _watch_torch() -> None:
    """Let torch programs use a store of their own beside the agent's: see `own_store`."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("HOLDFAST_HOOKS") == "0":
        return
    agent_port = os.environ.get("MASTER_PORT", "")
    module = sys.modules.get(TORCH_RENDEZVOUS)
    if module is None:
        sys.meta_path.insert(0, _TorchFinder(agent_port))
    else:
        _execute("own_store")["adjust"](module, agent_port)


class _TorchFinder:
    """A module finder that waits for the import of torch's rendezvous, and then removes itself."""

    def __init__(self, agent_port: str) -> None:
        self._agent_port = agent_port

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":  # noqa: ARG002 - finder protocol
        if name != TORCH_RENDEZVOUS:
            return None
        sys.meta_path.remove(self)
        try:
            return _execute("own_store")["spec_of"](name, path, self._agent_port)
        except Exception:  # noqa: BLE001 - torch is then imported unchanged
            return None


def _uncaught(kind: "type[BaseException]", value: BaseException, traceback: "TracebackType | None") -> None:
    if _thread.get_ident() != _main_thread:
        _record(value, _name_of_thread())
    elif kind is not KeyboardInterrupt:
        if _is_the_end():
            _record(value)
    elif sys._getframe().f_back is None:  # noqa: SLF001 - called by the interpreter itself
        _record(value)
        _set_interrupted()
    _main_hook(kind, value, traceback)


def _is_the_end() -> bool:
    """Whether the interpreter called the hook, directly or through another hook.

    A program that goes on may call it too, to show an exception. Then the program's first frame is still on the stack.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the stack has no public access without an import
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
    """Record the exception that ended a program whose own hook replaced ours, and whether the program ended well."""
    exc = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if type(exc) is not KeyboardInterrupt and getattr(sys, "excepthook", None) is not _uncaught:
        _record(exc)
    if _end is not None:
        try:  # noqa: SIM105 - contextlib is an import
            _end.note(has_failed=_has_failed)
        except Exception:  # noqa: BLE001, S110 - an end that cannot be recorded counts as bad
            pass


def _set_interrupted() -> None:
    """Have the process end with SIGINT, as every interrupted program does.

    The interpreter has already set its own flag for that, but evaluating a string resets it, and some imports do.
    """
    try:  # noqa: SIM105 - contextlib is an import
        exec("raise KeyboardInterrupt", {})  # noqa: S102 - see above
    except KeyboardInterrupt:
        pass


def _record(exc: "BaseException | None", thread: str = "") -> None:
    """Write an exception to the error file. If that fails, stderr still has it."""
    global _last, _has_failed  # noqa: PLW0603 - see `install`
    # A forked child inherits the hooks, but its parent has to handle its end.
    if exc is None or exc is _last or isinstance(exc, SystemExit) or os.getpid() != _pid:
        return
    _has_failed = True
    try:
        with _lock:
            if not thread:
                _last = exc
            namespace = _execute("own_imports")
            with namespace["OwnImports"](os.path.dirname(os.path.dirname(os.path.dirname(__file__)))):
                # Here: programs that end well never load it.
                from holdfast.errors.uncaught import record_uncaught

                record_uncaught(exc, thread, _written)
    except BaseException:  # noqa: BLE001, S110 - nothing may keep an exception from its hook
        pass


def _execute(module: str) -> "dict[str, Any]":
    """Execute a file beside this one, without adding a module to the program's."""
    from _frozen_importlib_external import SourceFileLoader

    name, path = "holdfast.worker." + module, os.path.join(os.path.dirname(__file__), module + ".py")
    namespace: dict[str, Any] = {"__name__": name, "__file__": path}
    code: Any = SourceFileLoader(name, path).get_code(name)
    exec(code, namespace)  # noqa: S102 - a file of ours
    return namespace
