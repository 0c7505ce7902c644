"""A set of processes that each run a Python function.

multiprocessing's code turns a Python process into one that can run a given function: its form of a pickled process, its
entry for a spawned child, its bootstrap. Two things differ. The keeper forks. And the value comes back through memory
that this process created and reads after the other has ended. A value of any size can be written without a reader, so
nothing has to be drained and nothing can deadlock.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from contextlib import suppress
from multiprocessing import context as mp_context
from multiprocessing import popen_spawn_posix, reduction, spawn
from multiprocessing.process import BaseProcess

from holdfast.own_path import programs_path
from holdfast.processes.arguments import START_METHODS, environment
from holdfast.processes.by_value import ByValue, dumps, needs_value
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S, PContext, remark_on_numa
from holdfast.processes.launch import Launch, PickledCall
from holdfast.processes.spawned import command_line, shared_tracker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from holdfast.processes.logs import LogsSpecs

GOOD_END = b"\0"
"""Follows the value when the function has returned and everything that it left running has ended. No pickle begins or
ends with it."""


class MultiprocessContext(PContext):
    """Runs ``entrypoint(*args)`` for each rank, and returns the functions' values.

    `start_method` is "spawn" (each in a fresh interpreter), "forkserver" (each in a fork of one fresh interpreter) or
    "fork" (each in a fork of this process).
    """

    entrypoint: Callable[..., Any]

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any],
        args: Mapping[int, tuple[Any, ...]],
        envs: Mapping[int, Mapping[str, str]],
        start_method: str,
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: object = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        if start_method not in START_METHODS:
            from holdfast.errors import InputError

            raise InputError(f"{name}: unknown start method {start_method!r}; choose from {', '.join(START_METHODS)}")
        super().__init__(
            *(name, entrypoint, args, envs, logs_specs, log_line_prefixes),
            duplicate_stdout_filters=duplicate_stdout_filters,
            duplicate_stderr_filters=duplicate_stderr_filters,
            shutdown_timeout=shutdown_timeout,
        )
        remark_on_numa(name, numa_options)
        self.start_method = start_method
        self._values: dict[int, int] = {}
        self._fds: list[int] = []

    def _launches(self) -> list[Launch]:
        lifeline, agents_end = os.pipe()
        self._fds += (lifeline, agents_end)
        return [self._launch(rank, lifeline, agents_end) for rank in sorted(self.args)]

    def _launch(self, rank: int, lifeline: int, agents_end: int) -> Launch:
        value = self._values[rank] = os.memfd_create(f"{self.name}-{rank}-value")
        self._fds.append(value)
        process = _FunctionProcess(
            f"{self.name}-{rank}", self.start_method, self.entrypoint, self.args[rank], value, lifeline
        )
        program: list[str] | Callable[[], int]
        fds: list[int] | None
        if self.start_method == "fork":
            program, fds = (lambda: process.run_in_fork(agents_end)), None
        else:
            pickled, fds = _pickled(process)
            self._fds.append(pickled)
            # One for all, as in multiprocessing: a worker's own tracker would unlink what others still use.
            tracker = shared_tracker()
            fds.append(tracker)
            if self.start_method == "forkserver" or self._is_warm:
                program = PickledCall(pickled, tracker, is_fresh=self.start_method == "spawn")
            else:
                program = command_line(pickled, tracker)
        env = environment(self.name, rank, self.envs[rank])
        return Launch(rank, program, env, self.logs.stdouts[rank], self.logs.stderrs[rank], fds)

    def _return_value(self, rank: int) -> Any:
        with open(self._values[rank], "rb", closefd=False) as file:
            file.seek(0)
            # Nothing was written for None, or if the function called sys.exit(0).
            has_value = os.pread(file.fileno(), 1, 0) not in (b"", GOOD_END)
            return pickle.load(file) if has_value else None  # noqa: S301 - our own worker wrote it

    def _ended_well(self, rank: int) -> bool:
        fd = self._values[rank]
        size = os.fstat(fd).st_size
        return size > 0 and os.pread(fd, 1, size - 1) == GOOD_END

    def _release(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


class _FunctionProcess(BaseProcess):
    """The process object that multiprocessing boots in the child; it is never started in the parent."""

    def __init__(
        self,
        name: str,
        start_method: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        value: int,
        lifeline: int,
    ) -> None:
        super().__init__(name=name)
        self._start_method = start_method
        self._by_value = start_method != "fork" and needs_value(function)
        self._call: Any = ByValue((function, args)) if self._by_value else (function, args)
        self._value = value
        self._lifeline = lifeline
        self.has_own_arguments = getattr(function, "has_own_arguments", False)
        """Whether the function sets ``sys.argv`` itself."""

    def run_in_fork(self, agents_end: int) -> int:
        os.close(agents_end)
        sys.path[:] = programs_path(sys.path)
        # The parent may have replaced these, as notebooks do; a redirect refers to the descriptors.
        sys.stdout = _stream_on(sys.stdout, 1)
        sys.stderr = _stream_on(sys.stderr, 2)
        return self._bootstrap(None)

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        if parent_sentinel is not None:
            os.close(parent_sentinel)  # a copy of the memory with our pickle, which says nothing about our parent
        before = self._place_of_value()
        code: int = super()._bootstrap(parent_sentinel=self._lifeline)  # type: ignore[misc]  # not in typeshed
        if code == 0 and self._place_of_value() == before != ():
            os.pwrite(self._value, GOOD_END, os.fstat(self._value).st_size)
        return code

    def _place_of_value(self) -> tuple[int, ...]:
        """This process, and the value's file: a function may fork, and close or reuse any descriptor."""
        try:
            status = os.fstat(self._value)
        except OSError:
            return ()
        return os.getpid(), status.st_dev, status.st_ino

    def run(self) -> None:
        from holdfast.errors import record
        from holdfast.worker import hooks

        with suppress(Exception):  # hooks that only explain failures must not cause one
            hooks.install(is_program=False)
        function, args = self._call
        value = record(function)(*args)
        if value is not None:
            record(self._send)(function, value)

    def _send(self, function: Callable[..., Any], value: object) -> None:
        try:
            with open(self._value, "wb", closefd=False) as file:
                if self._by_value:
                    file.write(dumps(value))  # its class may have come with the function
                else:
                    pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            os.ftruncate(self._value, 0)
            error.add_note(f"{function!r} returned a {type(value).__name__}, which cannot be sent to its parent")
            raise


class _Spawning:
    """Collects the descriptors that a pickled process refers to. They keep their numbers in the child."""

    DupFd = popen_spawn_posix._DupFd  # noqa: SLF001 - the counterpart of `duplicate_for_child`

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return fd


def _pickled(process: _FunctionProcess) -> tuple[int, list[int]]:
    """A descriptor with the process in the form that multiprocessing's children read, and all that it needs open."""
    spawning = _Spawning()
    file = io.BytesIO()
    mp_context.set_spawning_popen(spawning)  # type: ignore[arg-type]  # it has what pickling asks for
    try:
        data: dict[str, Any] = spawn.get_preparation_data(process.name)
        data["sys_path"] = programs_path(data["sys_path"])
        if process.has_own_arguments:
            data["sys_argv"] = data["sys_argv"][:1]
        reduction.dump(data, file)
        try:
            reduction.dump(process, file)
        except Exception as error:
            error.add_note("a function and its arguments are pickled to start it; start_method='fork' avoids this")
            raise
    finally:
        mp_context.set_spawning_popen(None)
    pickled = os.memfd_create(process.name)
    try:
        with open(pickled, "wb", closefd=False) as target:
            target.write(file.getbuffer())
        os.lseek(pickled, 0, os.SEEK_SET)
    except BaseException:
        os.close(pickled)
        raise
    return pickled, [pickled, process._value, process._lifeline, *spawning.fds]  # noqa: SLF001 - a class of this module


def _stream_on(stream: Any, fd: int) -> Any:
    try:
        if stream.fileno() == fd:
            return stream
    except (AttributeError, OSError, ValueError):
        pass
    return open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
