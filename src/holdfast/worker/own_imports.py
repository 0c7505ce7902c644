"""Imports inside a program whose own modules may shadow the standard library's, or ours.

A ``json.py`` beside the script shadows ``import json``, and may even be the cause of the failure that is about to be
recorded. Inside an `OwnImports` context, this thread imports the standard library and our package from where they are
installed. Other threads, which may run for a long time, notice nothing: sys.path stays as it is. On exit, modules that
the program would have found elsewhere are removed from sys.modules.
"""

import _thread
import os
import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_OURS = "holdfast"


class OwnImports:
    """A context manager that installs itself as the first module finder. `root` is where our package is installed."""

    def __init__(self, root: str) -> None:
        self._thread = _thread.get_ident()
        self._root = root
        self._library = os.path.dirname(os.__file__)
        self._names = {_OURS, *getattr(sys, "stdlib_module_names", ())}
        self._hidden: dict[str, ModuleType] = {}
        self._forget: set[str] = set()

    def __enter__(self) -> None:
        foreign = {name for name in self._names if name in sys.modules and self._is_foreign(name)}
        for name in list(sys.modules):
            if name.partition(".")[0] in foreign:
                self._hidden[name] = sys.modules.pop(name)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        forget = self._forget | {name.partition(".")[0] for name in self._hidden}
        for name in list(sys.modules):
            if name.partition(".")[0] in forget:
                del sys.modules[name]
        sys.modules.update(self._hidden)

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,  # noqa: ARG002 - finder protocol
    ) -> "ModuleSpec | None":
        if path is not None or name not in self._names or _thread.get_ident() != self._thread:
            return None
        where = [self._root] if name == _OURS else [self._library, os.path.join(self._library, "lib-dynload")]
        own = PathFinder.find_spec(name, where)
        if own is not None:
            theirs = PathFinder.find_spec(name)
            if theirs is not None and theirs.origin != own.origin:
                self._forget.add(name)
        return own

    def _is_foreign(self, name: str) -> bool:
        """Whether the program's module of this name is not the one that we expect."""
        file = getattr(sys.modules[name], "__file__", None)
        if not isinstance(file, str):
            return False  # built in
        base = os.path.join(self._root, _OURS) if name == _OURS else self._library
        return not os.path.abspath(file).startswith(base + os.sep)
