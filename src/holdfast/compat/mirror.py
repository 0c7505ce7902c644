"""Modules with torch's names that have our objects, made when they are imported."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from holdfast.compat.homes import HOMES, PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import CodeType


class Mirror:
    """Finds and loads the modules of `HOMES` below the package `top`.

    Those in `without` are left to the other finders, as is every module that the table does not have.
    """

    def __init__(self, top: str, without: Collection[str] = ()) -> None:
        self._prefix = f"{top}."
        self._without = without

    def install(self) -> None:
        """Have the modules found from now on, before any of the same name."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,  # noqa: ARG002 - finder protocol
    ) -> ModuleSpec | None:
        """The module of this name; None if it is not one of ours."""
        if not name.startswith(self._prefix):
            return None
        short = self._short(name)
        if short not in HOMES or short in self._without:
            return None
        is_package = any(other.startswith(f"{short}.") for other in HOMES)
        # Its base class would be `importlib.abc.Loader`, whose import costs more than ours.
        spec = ModuleSpec(name, self, origin=_file_of(short), is_package=is_package)  # type: ignore[arg-type]
        if is_package:
            # What the table does not have is found where it always was.
            leaf = name.rpartition(".")[2]
            spec.submodule_search_locations = [os.path.join(entry, leaf) for entry in path or ()]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module whose names are looked up when they are used."""
        return _MirrorModule(spec.name, self._short(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Give the module a file, which error messages and launchers that start it by its path show and use."""
        module.__file__ = _file_of(self._short(module.__name__))

    def get_code(self, name: str) -> CodeType | None:
        """What ``python -m NAME`` runs; None for a module that is not a program."""
        from importlib.util import find_spec

        spec = find_spec(PROGRAMS.get(self._short(name), ""))
        return None if spec is None else spec.loader.get_code(spec.name)  # type: ignore[union-attr]

    def _short(self, name: str) -> str:
        return name.removeprefix(self._prefix)


class _MirrorModule(ModuleType):
    """A module that imports a name's home when the name is first used."""

    _short: str
    _homes: tuple[str, ...]

    def __init__(self, name: str, short: str) -> None:
        super().__init__(name, f"The names of torch.distributed.{short}, as holdfast has them.")
        self._short = short
        self._homes = HOMES[short]

    def __getattr__(self, name: str) -> object:
        if not (name.startswith("__") and name.endswith("__")):
            for home in self._homes:
                __import__(home)
                try:
                    value: object = getattr(sys.modules[home], name)
                except AttributeError:
                    continue
                self.__dict__[name] = value
                return value
            if f"{self._short}.{name}" in HOMES:
                __import__(f"{self.__name__}.{name}")
                found: object = self.__dict__[name]
                return found
        elif name == "__all__":
            return self._public()
        raise AttributeError(f"holdfast has no counterpart of torch.distributed.{self._short}.{name}", name=name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._public()})

    def _public(self) -> list[str]:
        names: set[str] = set()
        for home in self._homes:
            __import__(home)
            names.update(getattr(sys.modules[home], "__all__", ()))
        return sorted(names)


def _file_of(short: str) -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    program = PROGRAMS.get(short)
    if program is None:
        return os.path.join(here, "homes.py")
    return os.path.join(os.path.dirname(os.path.dirname(here)), *program.split(".")) + ".py"
