"""How a process that runs a function begins: with our modules, and those of the standard library, from where they are
installed.

A fresh interpreter looks into the working directory first, and a function's process also has the directory of its
program in ``sys.path``. A ``select.py`` or ``multiprocessing.py`` there is the program's business. So what a process
needs before its function is imported before the program's path is set, and without the working directory. What the
program has a module of its own for is forgotten then, so that it gets its own.
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
    # Ours is found by its place, and all else without it.
    "sys.path.insert(0, {root!r}); import holdfast; del sys.path[0]; "
)
"""How an interpreter that was started with -c begins. `bare` are the modules that every interpreter has."""

_KEPT = "multiprocessing"
"""What runs the function to its end imports parts of itself on the way."""


def import_root() -> str:
    """The directory that holds this package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def boot(then: str) -> str:
    """The code of an interpreter that does `then`, which may use `bare`, and finds our modules in their place."""
    return BOOT.format(root=import_root()) + then


def shared_tracker() -> int:
    """The descriptor of the process that unlinks what children leave of shared memory, which is started if need be.

    multiprocessing starts it with -c, so with the working directory first in its path. It gets -P here.
    """
    from multiprocessing import resource_tracker, util

    flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way in
    util._args_from_interpreter_flags = lambda: [*flags(), "-P"]  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
    try:
        tracker = resource_tracker.getfd()
    finally:
        util._args_from_interpreter_flags = flags  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
    assert tracker is not None
    return tracker


def command_line(pickled: int, tracker: int) -> list[str]:
    """The command of a process that runs the function in the descriptor `pickled`, as multiprocessing has it."""
    from multiprocessing import spawn

    words = spawn.get_command_line(pipe_handle=pickled, tracker_fd=tracker)
    if "-c" in words:  # an executable that has its modules built in has not
        then = f"from holdfast.processes.spawned import main; main({pickled}, {tracker}, bare)"
        words[words.index("-c") + 1] = boot(then)
    return words


def main(pickled: int, tracker: int, bare: Collection[str]) -> None:
    """Be the process of a function, in an interpreter of its own."""
    from multiprocessing import spawn

    prepare(bare)
    spawn.spawn_main(pipe_handle=pickled, tracker_fd=tracker)


def prepare(bare: Collection[str] | None) -> None:
    """Import what runs a function. When its program's path is set, modules that the program has itself are forgotten,
    but for those in `bare`; without `bare`, none is.
    """
    from multiprocessing import spawn

    import holdfast.errors.recording
    import holdfast.processes.function
    import holdfast.worker.hooks  # noqa: F401 - likewise

    if bare is None:
        return
    theirs = spawn.prepare

    def forget_and_prepare(data: Mapping[str, Any]) -> None:
        spawn.prepare = theirs  # the program's own children are none of ours
        _forget(data.get("sys_path", ()), bare)
        theirs(data)

    spawn.prepare = forget_and_prepare


def _forget(path: Sequence[str], bare: Collection[str]) -> None:
    """Forget the modules of the standard library for which a directory before it in `path` has others."""
    library = os.path.dirname(os.__file__)
    candidates = {name.partition(".")[0] for name in sys.modules} & sys.stdlib_module_names - {*bare, _KEPT}
    for directory in path:
        if directory == library:
            return
        try:
            shadowed = candidates.intersection(name.partition(".")[0] for name in os.listdir(directory))
        except OSError:
            continue  # a path that leads nowhere, or an archive
        for name in [name for name in sys.modules if name.partition(".")[0] in shadowed]:
            del sys.modules[name]
