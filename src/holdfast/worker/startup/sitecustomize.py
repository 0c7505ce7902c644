"""The first thing that runs in a worker that is a Python program, and in the Python programs that it starts.

Python imports `sitecustomize` before a program begins. `holdfast.worker.injection` puts this directory into the
program's PYTHONPATH, so it is this one. It takes away every trace of that, installs the hooks if this process is the
worker itself and not a child of it, and gives way to the `sitecustomize` that would have been imported without it.
From then on the program is what it is under ``python script.py``: no wrapper, no other `__main__`, no frame.

It runs in whatever interpreter the worker happens to be, so it is written for any since 3.8, imports nothing of
holdfast, and does without the module `__future__`, which the program would find among its own. No other module may
live in this directory: it would hide one of the same name.
"""  # noqa: INP001 - a directory to look for modules in, not a package

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STATE = "HOLDFAST_STARTUP"  # the names and values of `injection`
_PID = "HOLDFAST_WORKER_PID"


def _restore(directory: str, was: str) -> None:
    """PYTHONPATH and sys.path as they would be without this directory, also after a script in between added to them.

    Where there was no PYTHONPATH, our entry stands for an empty text: ``/lib:$PYTHONPATH`` would have been "/lib:",
    and that is the working directory to Python.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if directory in entries:
        if was == "set":
            text = os.pathsep.join([entry for entry in entries if entry != directory])
        else:
            text = os.pathsep.join(["" if entry == directory else entry for entry in entries])
        if text or was == "empty":
            os.environ["PYTHONPATH"] = text
        else:
            del os.environ["PYTHONPATH"]
        if text and was != "set":
            here = os.getcwd()
            sys.path[:] = [here if entry == directory else entry for entry in sys.path]
            first = sys.path.index(here)
            sys.path[first + 1 :] = [entry for entry in sys.path[first + 1 :] if entry != here]


def _begin() -> None:
    directory = os.path.dirname(__file__)
    was = os.environ.pop(_STATE, "")
    pid = os.environ.pop(_PID, "")
    try:
        _restore(directory, was)
    finally:
        # Whatever happens: we must not find ourselves below.
        sys.path[:] = [entry for entry in sys.path if entry != directory]
        sys.path_importer_cache.pop(directory, None)
    if pid == str(os.getpid()):
        from _frozen_importlib_external import SourceFileLoader

        # Not by an import: the program's sys.modules is its own.
        name, path = "holdfast.worker.hooks", os.path.join(os.path.dirname(directory), "hooks.py")
        namespace: dict[str, Any] = {"__name__": name, "__file__": path}
        code: Any = SourceFileLoader(name, path).get_code(name)
        exec(code, namespace)  # noqa: S102 - a file of ours
        namespace["install"](is_program=True)


try:  # noqa: SIM105 - contextlib is an import
    _begin()
except Exception:  # noqa: BLE001, S110 - a program must not suffer from what is only there to explain its end
    pass

# What the import system finds under this name when we return is what it hands on. If there is no other, the error is
# the one that `site` expects.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
