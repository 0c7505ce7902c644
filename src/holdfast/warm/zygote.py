"""The template: a process that has imported what workers need, and forks a keeper with its workers on request.

It has one thread, and nothing open that workers must not share. If the imports break this rule, it reports that and
ends.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from holdfast.files import remove_tree
from holdfast.processes.children import children, end_children
from holdfast.processes.keeper import keep
from holdfast.processes.launch import Becoming, LastWill, Launch, PickledCall
from holdfast.processes.prctl import adopt_orphans, die_with_parent
from holdfast.processes.signal_setup import SignalSetup
from holdfast.warm.after_fork import Changes, freshen, open_files, show_command, write_files
from holdfast.warm.answers import DESCRIPTORS_MAX, MESSAGE_MAX_BYTES, encode
from holdfast.warm.exec_in_process import Program, become, begin
from holdfast.warm.importing import Imports
from holdfast.warm.safety import Safety

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType
    from typing import Any

FIRST_DESCRIPTOR = 100
"""The template's own descriptors start here, so that those which imports open have the same numbers as elsewhere."""


def serve(fd: int, modules: Iterable[str]) -> Callable[[], None]:
    """Be the template. Returns only in a worker, with the function to run. `modules` are those of every interpreter."""
    control = socket.socket(fileno=_out_of_the_way(fd))
    _, received, _, _ = socket.recv_fds(control, MESSAGE_MAX_BYTES, 1)
    if not received:
        os._exit(0)  # the agent is gone
    brief = _read(received[0])
    os.close(received[0])
    # The parent here is the thread that started us; it closes us before it ends.
    die_with_parent(signal.SIGKILL)
    if os.getppid() != brief["agent_pid"]:
        os._exit(0)
    template = _Template(control, brief, frozenset(modules))
    try:
        template.run()
    except Becoming as becoming:
        launch = becoming.launch
    except KeyboardInterrupt:
        os._exit(0)
    else:
        os._exit(0)
    return template.become(launch)


class _Template:
    def __init__(self, control: socket.socket, brief: dict[str, Any], modules_of_python: frozenset[str]) -> None:
        self._control = control
        self._program = Program(brief["words"])
        self._imports = Imports(
            self._program,
            modules=brief["modules"],
            source=brief["source"],
            env=brief["env"],
            modules_of_python=modules_of_python,
            tell=lambda name: self._say({"importing": name}),
        )
        self._hooks: CodeType | None = _compiled(brief["hooks"]) if brief["hooks"] else None
        self._changes = Changes({}, {})
        self._fds: dict[int, bool] = {}
        self._received: list[int] = []
        self._wakeup: tuple[int, ...] = ()
        self._keepers: set[int] = set()
        self._files: list[Any] = []

    def run(self) -> None:
        """Import, and answer requests until the agent is gone. Raises `Becoming` in a worker."""
        if self._program.name:
            begin(self._program)
        # Registered before all others, so that it runs last in a worker.
        atexit.register(lambda: write_files(self._files))
        adopt_orphans()  # processes left by an import or a killed keeper must not outlive us
        safety = Safety()
        if problem := self._import_all(safety):
            self._clean_up(safety)
            self._say({"problem": problem})
            return
        self._settle()
        failed = "; ".join(self._imports.failed)
        self._say({"modules": len(sys.modules), "left": self._imports.left, "failed": failed})
        wake, wakeup = self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake:
                    os.read(wake, 4096)
                    self._reap()
                elif not self._answer():
                    while self._reap():
                        os.wait()
                    return

    # Importing

    def _import_all(self, safety: Safety) -> str:
        """Import. Returns why this process cannot be forked, or ""."""
        if problem := _unsupported() or self._imports.run(safety):
            return problem
        safety.finish()
        self._fds = safety.fds
        self._changes = Changes(self._imports.env, os.environ)
        if hidden := self._imports.hidden():
            return f"{hidden} hides a module of the same name that is imported already"
        return ""

    def _settle(self) -> None:
        """Finish everything that the copies must not repeat."""
        import ctypes

        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError, OSError):
                stream.flush()
        ctypes.CDLL(None).fflush(None)
        gc.collect()
        self._files = open_files() if self._fds else []
        # Copies share this memory as long as the garbage collector does not touch it.
        gc.freeze()
        self._imports.note_files()

    def _clean_up(self, safety: Safety) -> None:
        """Remove what the imports left: there will be no workers."""
        end_children()
        for path in safety.temporary_directories():
            remove_tree(path)

    # Answering

    def _answer(self) -> bool:
        try:
            data, fds, flags, _ = socket.recv_fds(self._control, MESSAGE_MAX_BYTES, DESCRIPTORS_MAX)
        except ConnectionResetError:  # the agent closed without reading our messages
            return False
        if not data:
            return False
        self._received += fds
        if flags & socket.MSG_CTRUNC:
            self._received.append(-1)
        if data == b"fresh":
            changed = self._imports.changed()
            self._say({"stale": changed} if changed else {"fresh": True})
        elif data == b"fork":
            fds, self._received = self._received, []
            self._fork_keeper(fds)
            for fd in fds:
                if fd >= 0:
                    os.close(fd)
        return True

    def _fork_keeper(self, fds: list[int]) -> None:
        if -1 in fds:
            self._say({"refused": "the template has no room for that many descriptors"})
            return
        request = _read(fds[0])
        if taken := self._fds.keys() & set(request["fds"]):
            self._say({"refused": f"an import holds the descriptor {min(taken)}"})
            return
        self._reap()  # keepers that have ended since, so that the copy does not see them
        signals = SignalSetup.block_all()
        try:
            pid = os.fork()
        except OSError as error:
            signals.unblock()
            self._say({"refused": f"the template cannot be forked: {error.strerror}"})
            return
        if pid == 0:
            self._become_keeper(request, fds)
        self._keepers.add(pid)
        signals.unblock()
        pidfd = os.pidfd_open(pid)
        with suppress(OSError):  # the agent is gone
            socket.send_fds(self._control, [encode({"keeper": pid})], [pidfd])
        os.close(pidfd)

    def _become_keeper(self, request: dict[str, Any], fds: list[int]) -> None:
        """In the copy. Leaves only in a worker that is about to become its program."""
        try:
            signal.set_wakeup_fd(-1)
            os.close(self._control.detach())
            for fd in self._wakeup:
                os.close(fd)
            brief, directory, *rest = fds
            os.fchdir(directory)
            os.close(brief)
            os.close(directory)
            count = 3 if request["will"] is None else 4
            commands, reports, shared, *wills = _place(
                rest[:count], dict(zip(request["fds"], rest[count:], strict=True))
            )
            will = LastWill(request["will"], wills[0]) if wills else None
            signals = SignalSetup(*request["signals"])
            launches = [self._launch(*plain) for plain in request["launches"]]
        except BaseException:  # noqa: BLE001 - this copy must not continue as a second template
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        keep(launches, (commands, reports, shared), request["agent_pid"], signals, will, is_child=False)

    def _launch(self, rank: int, program: Any, env: dict[str, str], out: str, err: str, fds: list[int]) -> Launch:
        env = self._changes.applied_to(env)
        kept = [*fds, *self._fds]
        if not isinstance(program, tuple):
            return Launch(rank, program, env, out, err, kept, in_process=True)
        call = PickledCall(*program)
        if call.is_fresh:  # it ends as an interpreter does
            return Launch(rank, call, env, out, err, kept, in_process=True)

        def fresh_call() -> int:
            freshen(env, self._fds)
            return call()

        return Launch(rank, fresh_call, env, out, err, kept)

    def _reap(self) -> bool:
        """Reap ended keepers, and kill the orphans of keepers that were killed. Returns whether there were orphans."""
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._keepers.discard(pid)
        strays = [pid for pid in children() if pid not in self._keepers]
        for pid in strays:
            with suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)  # our child, unreaped
        return bool(strays)

    def _say(self, message: dict[str, Any]) -> None:
        flags = socket.MSG_DONTWAIT if "importing" in message else 0  # the agent may not be reading yet
        with suppress(OSError):  # the agent is gone
            self._control.send(encode(message), flags)

    # In a worker

    def become(self, launch: Launch) -> Callable[[], None]:
        """Become the process of `launch`. Returns the function that runs it."""
        freshen(launch.env, self._fds)
        program = launch.program
        if isinstance(program, PickledCall):
            return lambda: sys.exit(program())
        assert not callable(program)
        show_command(program)
        words = list(program)[1:]
        return become(Program(words), words, self._hooks)


def _out_of_the_way(fd: int) -> int:
    import fcntl

    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
    except OSError:  # above this process's limit
        os.set_inheritable(fd, False)
        return fd
    os.close(fd)
    return moved


def _unsupported() -> str:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return "this system has no pidfd"
    return ""


def _place(ends: Sequence[int], wanted: dict[int, int]) -> tuple[int, ...]:
    """Move descriptors to the numbers in `wanted`. Returns the new numbers of `ends`, which may be any others."""
    free: list[int] = []
    moved: list[int] = []
    for end in ends:
        while end in wanted:
            free.append(end)
            end = os.dup(end)  # noqa: PLW2901 - a number that is not wanted
        moved.append(end)
    for fd in free:
        os.close(fd)
    waiting = {number: fd for number, fd in wanted.items() if number != fd}
    while waiting:
        number = next((number for number in waiting if number not in waiting.values()), None)
        if number is None:  # a cycle: each number is held by another
            number = next(iter(waiting))
            holder = next(other for other, fd in waiting.items() if fd == number)
            waiting[holder] = os.dup(number)
        fd = waiting.pop(number)
        os.dup2(fd, number, inheritable=False)
        os.close(fd)
    return tuple(moved)


def _read(fd: int) -> dict[str, Any]:
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        content: dict[str, Any] = marshal.load(file)  # noqa: S302 - from our parent
    return content


def _compiled(path: str) -> CodeType:
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", dont_inherit=True)
