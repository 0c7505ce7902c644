"""The first code of every Python program below ``holdfast exec``: it waits for the import of torch's launcher.

`holdfast.cli.exec` puts this directory into PYTHONPATH, where it stays for the program's children. From `sys.path` it
is removed, and the `sitecustomize` that it has shadowed is imported in its place.

It runs in any interpreter since 3.8, also in one that has no holdfast. A program that never imports torch's launcher
pays one comparison for each module that it imports. Put no other module into this directory: it would shadow one of
the same name.
"""  # noqa: INP001 - a directory on the module search path, not a package

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VARIABLE = "HOLDFAST_EXEC"  # name and value as in `holdfast.cli.exec`
_TOP = "torch.distributed"
_REPLACED = (_TOP + ".run", _TOP + ".launch", _TOP + ".launcher", _TOP + ".elastic")


class _Finder:
    """Has holdfast's modules found. What it needs for that is imported when the first of torch's is asked for."""

    def __init__(self) -> None:
        self._mirror: Any = None
        self._is_alone = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if not name.startswith(_REPLACED):
            return None
        if self._mirror is None and not self._is_alone:
            try:
                from holdfast.compat.homes import PARTIAL
                from holdfast.compat.mirror import Mirror

                self._mirror = Mirror(_TOP, without=PARTIAL)
            except Exception as error:  # noqa: BLE001 - an old interpreter may not even be able to read the files
                self._is_alone = True
                _warn(type(error).__name__)
        return None if self._mirror is None else self._mirror.find_spec(name, path, target)


def _warn(problem: str) -> None:
    parts = ("torch's own launcher is used: ", sys.executable, " cannot import holdfast (", problem)
    if sys.stderr is not None:
        sys.stderr.write("holdfast exec: " + "".join(parts) + "); install holdfast for it\n")


def _begin() -> None:
    directory = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    sys.path_importer_cache.pop(directory, None)
    if os.environ.get(_VARIABLE) == "1":
        sys.meta_path.insert(0, _Finder())


try:  # noqa: SIM105 - contextlib is an import
    _begin()
except Exception:  # noqa: BLE001, S110 - a program must not fail because its working directory is gone, for example
    pass

# The import system returns the module that it finds under this name when we return. If there is no other
# sitecustomize, the ImportError is the one that `site` expects.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401 - the one that we hide, if any
