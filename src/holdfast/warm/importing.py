"""The imports of a template: which they are, doing them, and whether they would be the same now."""

from __future__ import annotations

import os
import sys
import time

from holdfast.warm.answers import failed_import
from holdfast.warm.safety import OWN_VARIABLES, hidden_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.warm.exec_in_process import Program
    from holdfast.warm.reading import Reading, Step
    from holdfast.warm.safety import Safety

_LIBRARY_DIRECTORIES = ("site-packages", "dist-packages")


class Imports:
    """The imports that a program begins with, or those of a given list of modules.

    `source` is the file of a function that workers run instead of a program. `env` is the environment that imports
    find. `modules_of_python` are those that every interpreter has. `tell` is called with the name of each module before
    it is imported.
    """

    def __init__(
        self,
        program: Program,
        *,
        modules: Sequence[str] | None,
        source: str | None,
        env: dict[str, str],
        modules_of_python: frozenset[str],
        tell: Callable[[str], None],
    ) -> None:
        self.env = env
        self.failed: list[str] = []
        """The given modules that could not be imported, and why."""
        self._program = program
        self._modules = modules
        self._source = source
        self._modules_of_python = modules_of_python
        self._tell = tell
        self._began_ns = time.time_ns()
        self._stamps: dict[str, tuple[int, int, int]] = {}
        self._reading: Reading | None = None
        self._read_stamps: dict[str, tuple[int, int, int] | None] = {}

    @property
    def left(self) -> str:
        """The statement of the program after which its imports are left to the workers; "" if there is none."""
        return self._reading.left if self._reading else ""

    def run(self, safety: Safety) -> str:
        """Import. Returns what an import did that forbids to fork this process, or ""."""
        count = len(sys.modules)
        if problem := safety.problem():  # no import yet, but sitecustomize and the like have run
            return f"the start of Python {problem}"
        for step in self._steps():
            if not self._do(step):
                continue
            if len(sys.modules) != count:
                count = len(sys.modules)
                if problem := safety.problem():
                    return f"import {step.name} {problem}"
        return ""

    def note_files(self) -> None:
        """Remember the state of the imported files."""
        now_ns = time.time_ns()
        for path in _files():
            if (stamp := _stamp(path)) is not None:
                # A file that was written meanwhile may have been imported before the write.
                self._stamps[path] = (0, 0, 0) if self._began_ns <= stamp[0] <= now_ns else stamp

    def changed(self) -> str:
        """A file because of which imports would differ now; "" if they would be the same."""
        changed = next((path for path, stamp in self._stamps.items() if _stamp(path) != stamp), None)
        return changed or self._read_otherwise() or self.hidden()

    def _steps(self) -> list[Step]:
        from holdfast.warm.reading import IMPORT, Step

        if self._modules is not None:
            return [Step(IMPORT, name, ()) for name in self._modules]
        self._reading = self._read()
        self._read_stamps = {path: _stamp(path) for path in self._reading.files}
        return self._reading.steps

    def _do(self, step: Step) -> bool:
        """Do one step of the program. Returns whether it was an import."""
        from holdfast.warm.reading import IMPORT, PLACE, SET_DEFAULT, UNSET

        name, value = step.name, step.value
        if step.kind == IMPORT:
            if self._modules is not None or _is_library(name):
                self._import(name, value)
            return True
        # `PLACE` is handled elsewhere. A variable that differs between workers stays unset: an import that reads it is
        # reported.
        if step.kind == PLACE or name in OWN_VARIABLES:
            return False
        # The worker repeats this step itself, so it must not count as a change by imports.
        for env in (os.environ, self.env):
            if step.kind == UNSET:
                env.pop(name, None)
            elif step.kind != SET_DEFAULT or name not in env:
                env[name] = str(value)
        return False

    def _import(self, name: str, parts: Sequence[str]) -> None:
        if name not in sys.modules:
            self._tell(name)
        # Failed imports are left to the workers: they may handle them.
        try:
            __import__(name, None, None, parts)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - see above
            if self._modules is not None:
                self.failed.append(failed_import(name, error))

    def _read(self) -> Reading:
        from holdfast.warm.reading import files_of_module, read

        here = os.getcwd()
        program = self._program
        if self._source is not None:
            files = [self._source]
        elif program.is_module:
            files = files_of_module(program.name, [here, *sys.path])
        elif os.path.isdir(program.path):
            files = [os.path.join(program.path, "__main__.py")]
        else:
            files = [program.path]
        roots = [here, *(os.path.dirname(os.path.realpath(path)) for path in files[-1:])]
        # A function's file is imported; a program's file is run.
        return read(files, roots, files[-1] if files and self._source is None else "")

    def hidden(self) -> str:
        """A module of the program that hides one which is imported already; else ""."""
        directory = self._program.directory if self._program.name else ""
        places = [directory, *(self._reading.places if self._reading else ())]
        found = (hidden_module(place, self._modules_of_python) for place in places if place)
        return next(filter(None, found), "")

    def _read_otherwise(self) -> str:
        """A changed file of the program, if imports would now be done differently; else ""."""
        if self._reading is None:
            return ""
        changed = next((path for path, stamp in self._read_stamps.items() if _stamp(path) != stamp), "")
        if not changed:
            return ""
        reading = self._read()
        if reading.beside_imports() != self._reading.beside_imports():
            return changed
        self._read_stamps = {path: _stamp(path) for path in reading.files}
        return ""


def _is_library(name: str) -> bool:
    """Whether the module belongs to an installed package, or to Python itself."""
    import sysconfig
    from importlib.util import find_spec

    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    try:
        spec = find_spec(top)
    except Exception:  # noqa: BLE001 - a broken package, or something that only looks like one
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.origin and spec.has_location else list(spec.submodule_search_locations or [])
    own = tuple({path + os.sep for key in ("purelib", "platlib") if (path := sysconfig.get_path(key))})
    return any(place.startswith(own) or _is_installed(place) for place in places)


def _is_installed(path: str) -> bool:
    return any(part in _LIBRARY_DIRECTORIES for part in path.split(os.sep))


def _files() -> set[str]:
    paths = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path for path in paths if isinstance(path, str)}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
