"""One process of a set: its program, and what it starts with."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from holdfast import procfs
from holdfast.signals import set_as_interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


class Launch:
    """One process of the set: its rank, its program, and what it starts with.

    `program` is a command line, or a function that runs in a fork of the keeper and returns the exit code. `env` is
    the whole environment. `stdout` and `stderr` are paths to append to, or empty to inherit. The standard descriptors
    and `fds` stay open; None keeps all, as a fork does. With `in_process`, a command is not executed: the fork of the
    keeper becomes it, with the code that called `keep`.
    """

    __slots__ = ("env", "fds", "in_process", "program", "rank", "stderr", "stdout")

    def __init__(
        self,
        rank: int,
        program: Sequence[str] | Callable[[], int],
        env: Mapping[str, str],
        stdout: str = "",
        stderr: str = "",
        fds: Sequence[int] | None = (),
        *,
        in_process: bool = False,
    ) -> None:
        self.rank = rank
        self.program = program
        self.env = env
        self.stdout = stdout
        self.stderr = stderr
        self.fds = fds
        self.in_process = in_process


class LastWill:
    """The command that a keeper becomes when its agent has died and no process of the set is left. Its last argument is
    the number of `fd`. The agent may write to that file at any time; workers do not have it.
    """

    __slots__ = ("command", "fd")

    def __init__(self, command: Sequence[str], fd: int) -> None:
        self.command = command
        self.fd = fd


class Becoming(BaseException):
    """Raised out of `keep` in a worker: this process is ready to become the program of `launch`."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


class PickledCall:
    """A program that is a pickled function in a descriptor, in the form that multiprocessing gives to its children.

    `tracker` is the descriptor of the resource tracker that it shares with its parent. `is_fresh` means that the
    function would otherwise have had an interpreter of its own. `bare` are the modules that the keeper's interpreter
    started with, if it is a fresh one.
    """

    def __init__(self, fd: int, tracker: int, is_fresh: bool = False, *, bare: Collection[str] | None = None) -> None:
        self.fd = fd
        self.tracker = tracker
        self.is_fresh = is_fresh
        self._bare = bare

    def __call__(self) -> int:
        from multiprocessing import resource_tracker, spawn

        from holdfast.processes.spawned import prepare

        prepare(self._bare)
        resource_tracker._resource_tracker._fd = self.tracker  # type: ignore[attr-defined]  # noqa: SLF001 - as spawn_main does
        code: int = spawn._main(self.fd, None)  # type: ignore[arg-type]  # noqa: SLF001 - as its fork server does
        return code


def call(program: Callable[[], int], env: Mapping[str, str]) -> int:
    os.environ.clear()
    os.environ.update(env)
    set_as_interpreter()
    try:
        return program()
    except BaseException:  # noqa: BLE001 - the function's errors are handled inside; this is the rest
        sys.excepthook(*sys.exc_info())
        return 1


def append_to(path: str, fd: int) -> None:
    """Have a stream of this process append to a file."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(opened, fd)
    os.close(opened)


def keep_only(fds: Collection[int]) -> None:
    """Close every descriptor but the standard ones and `fds`, and make `fds` not inheritable."""
    procfs.close_descriptors(fds)
    for fd in fds:
        os.set_inheritable(fd, False)


def become_will(will: LastWill) -> None:
    """Become the last will's command. Returns only if it cannot be executed; then the will is not carried out."""
    keep_only({will.fd})
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nowhere, fd)  # readers of the agent's output must not wait for us
    os.set_inheritable(will.fd, True)
    with suppress(OSError):
        os.execv(will.command[0], [*will.command, str(will.fd)])  # noqa: S606 - no shell wanted
