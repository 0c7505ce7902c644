"""How a process that runs a function starts: with our modules and the standard library from where they are installed.

A fresh interpreter searches the working directory first, and a function's process also has the directory of its program
in ``sys.path``. A ``select.py`` or ``multiprocessing.py`` there belongs to the program. So a process imports what it
needs before the program's path is set, and without the working directory. Then it forgets the modules that the program
has its own versions of, so that the program gets its own.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

BOOT = (
    "import sys; bare = [*sys.modules]; del sys.path[: 1 - sys.flags.safe_path]; "
    # Find our package by its path, and everything else without it.
    "sys.path.insert(0, {root!r}); import holdfast; del sys.path[0]; "
)
"""How an interpreter that is started with -c begins. `bare` are the modules that every interpreter has."""

_KEPT = "multiprocessing"
"""Never forgotten: it imports parts of itself while it runs the function."""


def import_root() -> str:
    """The directory that holds this package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def boot(then: str) -> str:
    """Code for an interpreter that finds our modules and then does `then`, which may use `bare`."""
    return BOOT.format(root=import_root()) + then


def shared_tracker() -> int:
    """The descriptor of the resource tracker, which unlinks shared memory that children leave. Starts it if needed.

    multiprocessing starts it with -c, so with the working directory first in its path. Here it gets -P.
    """
    from multiprocessing import resource_tracker, util

    flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    util._args_from_interpreter_flags = lambda: [*flags(), "-P"]  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
    try:
        tracker = resource_tracker.getfd()
    finally:
        util._args_from_interpreter_flags = flags  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
    assert tracker is not None
    return tracker


def command_line(pickled: int, tracker: int) -> list[str]:
    """The command of a process that runs the function in the descriptor `pickled`, as in multiprocessing."""
    from multiprocessing import spawn

    words = spawn.get_command_line(pipe_handle=pickled, tracker_fd=tracker)
    if "-c" in words:  # not in an executable with built-in modules
        then = f"from holdfast.processes.spawned import main; main({pickled}, {tracker}, bare)"
        words[words.index("-c") + 1] = boot(then)
    return words


def main(pickled: int, tracker: int, bare: Collection[str]) -> None:
    """Run the function, in an interpreter of its own."""
    from multiprocessing import spawn

    prepare(bare)
    spawn.spawn_main(pipe_handle=pickled, tracker_fd=tracker)


def prepare(bare: Collection[str] | None) -> None:
    """Import what runs a function. Once its program's path is set, forget the modules that the program has itself,
    except those in `bare`. Without `bare`, forget none.
    """
    from multiprocessing import spawn

    import holdfast.errors.recording
    import holdfast.processes.function
    import holdfast.worker.hooks  # noqa: F401 - likewise

    if bare is None:
        return
    theirs = spawn.prepare

    def forget_and_prepare(data: Mapping[str, Any]) -> None:
        spawn.prepare = theirs  # leave the program's own children alone
        _forget(data.get("sys_path", ()), bare)
        theirs(data)

    spawn.prepare = forget_and_prepare


def _forget(path: Sequence[str], bare: Collection[str]) -> None:
    """Forget the standard library modules that a directory before the library in `path` shadows."""
    library = os.path.dirname(os.__file__)
    candidates = {name.partition(".")[0] for name in sys.modules} & sys.stdlib_module_names - {*bare, _KEPT}
    for directory in path:
        if directory == library:
            return
        try:
            shadowed = candidates.intersection(name.partition(".")[0] for name in os.listdir(directory))
        except OSError:
            continue  # it does not exist, or is an archive
        for name in [name for name in sys.modules if name.partition(".")[0] in shadowed]:
            del sys.modules[name]
