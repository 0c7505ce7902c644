"""Starts a keeper, in a copy of this process or in a fresh interpreter.

A copy starts ten times faster. A function with the start method fork needs a copy in any case. Otherwise only a process
with one thread is copied: a lock that another thread holds would stay locked in the copy for ever.

A fresh keeper begins in `main`, so this module imports only what a keeper needs.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from holdfast import procfs
from holdfast.processes.keeper import keep
from holdfast.processes.launch import LastWill, Launch, PickledCall
from holdfast.processes.signal_setup import SignalSetup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import NoReturn

    from holdfast.processes.keeper import Ends

_FRESH_KEEPER = "from holdfast.processes.keeper_start import main; main(int(sys.argv[1]), bare)"


def start_keeper(launches: Sequence[Launch], ends: Ends, agents_ends: Sequence[int], will: LastWill | None) -> int:
    """Start the keeper of `launches`; returns its process id. It gets `ends`, and `agents_ends` are not left open."""
    start = _fresh if _wants_fresh(launches) else _copy
    return start(launches, ends, agents_ends, will)


def _wants_fresh(launches: Sequence[Launch]) -> bool:
    programs = [launch.program for launch in launches]
    if any(isinstance(program, PickledCall) for program in programs):
        return True
    return not any(callable(program) for program in programs) and _has_threads()


def _has_threads() -> bool:
    """Whether there are other threads of any kind, not only Python's."""
    try:
        return procfs.has_threads()
    except OSError:
        import threading

        return threading.active_count() > 1


def _copy(launches: Sequence[Launch], ends: Ends, agents_ends: Sequence[int], will: LastWill | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        # Otherwise the copies would write it again. It may be any object of the user's, or None.
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
    agent_pid = os.getpid()
    signals = SignalSetup.block_all()
    try:
        pid = os.fork()
        if pid == 0:
            for fd in agents_ends:
                os.close(fd)
            keep(launches, ends, agent_pid, signals, will)
        return pid
    finally:
        signals.unblock()


def _fresh(launches: Sequence[Launch], ends: Ends, _agents_ends: Sequence[int], will: LastWill | None) -> int:
    import marshal

    from holdfast.errors.secret import public_environment
    from holdfast.processes.spawned import boot

    signals = SignalSetup.block_all()
    brief = os.memfd_create("holdfast-keeper")
    try:
        with open(brief, "wb", closefd=False) as file:
            plain_will = None if will is None else (list(will.command), will.fd)
            marshal.dump(([plain(each) for each in launches], ends, os.getpid(), signals.plain(), plain_will), file)
        os.lseek(brief, 0, os.SEEK_SET)
        passed = {brief, *ends, *(fd for launch in launches for fd in launch.fds or ())}
        if will is not None:
            passed.add(will.fd)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, *_interpreter_flags(launches), "-c", boot(_FRESH_KEEPER), str(brief)],
            {**os.environ, **public_environment(os.environ)},  # the kernel shows it for workers that are forked from it
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed],
        )
    finally:
        os.close(brief)
        signals.unblock()


def plain(launch: Launch) -> tuple[object, ...]:
    """A launch in a form for `marshal`. Functions of this process have none."""
    call = launch.program
    if isinstance(call, PickledCall):
        program: object = (call.fd, call.tracker, call.is_fresh)
    else:
        assert not callable(call), "only a copy of this process can call it"
        program = list(call)
    return (launch.rank, program, dict(launch.env), launch.stdout, launch.stderr, launch.fds)


def _interpreter_flags(launches: Sequence[Launch]) -> list[str]:
    """As few flags as the keeper needs; if workers are forked from it, those of this interpreter."""
    if not any(isinstance(launch.program, PickledCall) for launch in launches):
        return ["-I", "-S"]
    import subprocess

    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    return flags


def main(brief: int, bare: Collection[str]) -> NoReturn:
    """Be the keeper in an interpreter of its own. `bare` are the modules that it started with."""
    import marshal

    with open(brief, "rb") as file:
        plain_launches, ends, agent_pid, signals, will = marshal.load(file)  # noqa: S302 - from our parent
    launches = [
        Launch(rank, PickledCall(*program, bare=bare) if isinstance(program, tuple) else program, *rest)
        for rank, program, *rest in plain_launches
    ]
    keep(launches, ends, agent_pid, SignalSetup(*signals), None if will is None else LastWill(*will))
