"""The first code that runs in a Python worker, and in the Python programs that it starts.

Python imports `sitecustomize` before a program begins. `holdfast.worker.injection` puts this directory into the
program's PYTHONPATH, so Python imports this one. It removes every trace of that. In the worker itself, but not in its
children, it installs the hooks. Then it imports the `sitecustomize` that it has shadowed. From then on the program is
the same as under ``python script.py``: no wrapper, no other `__main__`, no extra frame.

It must run in any interpreter since 3.8. So it imports nothing of holdfast, and not `__future__`, which would stay in
the program's sys.modules. Put no other module into this directory: it would shadow one of the same name.
"""  # noqa: INP001 - a directory on the module search path, not a package

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STATE = "HOLDFAST_STARTUP"  # names and values as in `injection`
_PID = "HOLDFAST_WORKER_PID"


def _restore(directory: str, was: str) -> None:
    """Restore PYTHONPATH and sys.path as they would be without this directory, even if a script extended them.

    Without an original PYTHONPATH, our entry stands for an empty string: ``/lib:$PYTHONPATH`` would have been "/lib:",
    and Python reads the empty entry as the working directory.
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
        # In any case: the import below must not find this file again.
        sys.path[:] = [entry for entry in sys.path if entry != directory]
        sys.path_importer_cache.pop(directory, None)
    if pid == str(os.getpid()):
        from _frozen_importlib_external import SourceFileLoader

        # Not imported: that would add to the program's sys.modules.
        name, path = "holdfast.worker.hooks", os.path.join(os.path.dirname(directory), "hooks.py")
        namespace: dict[str, Any] = {"__name__": name, "__file__": path}
        code: Any = SourceFileLoader(name, path).get_code(name)
        exec(code, namespace)  # noqa: S102 - a file of ours
        namespace["install"](is_program=True)


try:  # noqa: SIM105 - contextlib is an import
    _begin()
except Exception:  # noqa: BLE001, S110 - a program must not fail because of hooks that only explain failures
    pass

# The import system returns the module that it finds under this name when we return. If there is no other
# sitecustomize, the ImportError is the one that `site` expects.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401 - the one that we hide, if any
