"""The keeper: the common ancestor of all processes of a set.

The agent does not start workers itself. A small process between them does, and it is for the set what init is for a
machine:

- It is the workers' parent and a subreaper, so whatever a worker leaves behind, in whatever session, becomes its child.
  No process can leave the set, and ECHILD from ``wait`` is the kernel's own proof that none is left.
- It outlives a killed agent just long enough to end the set. A pidfd tells it that the agent died, or the end of its
  command pipe where there are no pidfds.
- Children, signal handlers and waits are the keeper's alone. The agent's process, which may be a user's notebook, keeps
  its own; the agent sees one readable descriptor. Threads do not matter either: a parent-death signal is sent when the
  *thread* that forked ends. In the keeper that is the main thread, which lives as long as the keeper.
- It reads what workers write to a stderr that is not a file, so that failure reports can show it (`console_relay`).

Only the parent signals its children, and it has not reaped them: their pids cannot have been reused. The keeper does
not search for grandchildren. It adopts them when their parents end.

The keeper waits for SIGCHLD and not for a pidfd of each worker, because nothing else announces the exits of adopted
processes. One mechanism serves both, and works on every kernel.

An agent with a lease on this work writes a *fence* into memory that both share: the monotonic time at which the keeper
ends the set with SIGKILL, unless a later fence is set by then. The agent itself may be stopped at that time.

The agent may leave a *last will*: a command that the keeper becomes after the agent has died, once the kernel has said
that no process of the set is left.

The agent writes the first three of these lines, and the keeper writes the others:

    stop SIGNAL GRACE_S          end the set: the signal to all, SIGKILL after the grace
    fence                        read the fence: it is earlier than before
    again                        answer with the same word

    pid RANK PID                 the process of this rank was forked
    error RANK ERRNO PATH        ... and could not become its program
    started                      all of them run their programs, or have failed to
    heard RANK HEX               the end of its output, before the line that reports its failure
    exit RANK CODE TIME KIB      it ended (minus the signal's number), its peak memory
    stopping RANK ...            later exits may be caused by us, except for these ranks, which already end
    fenced                       ... because the fence was not renewed
    gone                         the set has no processes
    stuck PID ...                these survive SIGKILL; the keeper stays with them
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

from holdfast import procfs
from holdfast.processes.children import children, end_children, signal_group
from holdfast.processes.console_relay import ConsoleRelay
from holdfast.processes.exiting import is_ending
from holdfast.processes.fence import read_fence
from holdfast.processes.keeper_reports import Reports
from holdfast.processes.keeper_states import (
    ENDED,
    HAVE_PROCESSES,
    HEED_FENCE,
    KILL,
    RUNNING,
    SIGNAL_CHILDREN,
    SIGNAL_WORKERS,
    TELL_FENCED,
    TELL_STOPPING,
    TELL_STOPPING_ALL,
    TELL_STUCK,
    AgentDied,
    AllGone,
    AllShown,
    ChildrenChanged,
    DeadlinePassed,
    FencePassed,
    Life,
    Stop,
    WorkerExited,
)
from holdfast.processes.launch import Becoming, append_to, become_will, call, keep_only
from holdfast.processes.prctl import adopt_orphans, die_with_parent
from holdfast.processes.signal_setup import ignore_signals
from holdfast.waiting import poll_ms
from holdfast.worker.injection import for_this_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn, TypeAlias

    from holdfast.processes.launch import LastWill, Launch
    from holdfast.processes.signal_setup import SignalSetup

    Ends: TypeAlias = tuple[int, int, int]
    """The keeper's ends of its channels to the agent: the commands, the reports, and the file with the fence and the
    byte counts.
    """

AGENT_END_WAIT_S = 1.0
"""How long an agent may take to exit after its pipe closed. If it lives on, it has only released this set."""

PROGRAM_NOT_STARTED = 127
"""The exit code of a worker that could not become its program, as in a shell."""


def keep(
    launches: Sequence[Launch],
    ends: Ends,
    agent_pid: int,
    signals: SignalSetup,
    will: LastWill | None = None,
    *,
    is_child: bool = True,
) -> NoReturn:
    """Be the keeper of `launches`, and exit. Called in a process of its own, with all signals blocked.

    `is_child`: the parent is the agent, not a process that forks keepers for it. Only a worker whose launch is
    `in_process` returns from here, with `Becoming`.
    """
    code = 1
    becoming = None
    try:
        _Keeper(launches, ends, agent_pid, signals, will, is_child=is_child).run()
        code = 0
    except Becoming as ready:
        becoming = ready
    except BaseException:  # noqa: BLE001 - in no case may this process return into its caller's frames
        end_children()
        sys.excepthook(*sys.exc_info())
    finally:
        if becoming is None:
            os._exit(code)
    raise becoming.with_traceback(None)


class _Keeper:
    def __init__(
        self,
        launches: Sequence[Launch],
        ends: Ends,
        agent_pid: int,
        signals: SignalSetup,
        will: LastWill | None,
        *,
        is_child: bool,
    ) -> None:
        commands, reports, self._shared = ends
        self._launches = launches
        self._commands = commands
        self._reports = reports
        self._will = will
        self._has_agent_ended = False
        self._signals = signals
        self._pid = os.getpid()
        self._ranks: dict[int, int] = {}
        self._command = b""
        self._life = Life()
        self._fence: float | None = None
        self._effects: dict[str, Callable[[int], object]] = {
            TELL_STOPPING: lambda _: self._tell_stopping(),
            TELL_STOPPING_ALL: lambda _: self._tell("stopping"),
            TELL_FENCED: lambda _: self._tell("fenced"),
            TELL_STUCK: lambda _: self._tell(f"stuck {' '.join(map(str, children()))}"),
            SIGNAL_WORKERS: self._signal_workers,
            SIGNAL_CHILDREN: self._signal_children,
            KILL: self._kill,
        }
        self._signalled: set[int] = set()
        self._name = procfs.name()

        os.set_blocking(reports, False)
        _leave_the_agents_terminal()
        if all(launch.fds is not None for launch in launches):
            # A keeper that is a copy of the agent must not hold the agent's sockets and files open.
            wills = () if will is None else (will.fd,)
            keep_only({*ends, *wills, *(fd for launch in launches for fd in launch.fds or ())})
        self._child_exits, self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        ignore_signals()
        self._has_proof = adopt_orphans()
        # If this process was stopped and then the agent killed, the kernel continues it, so that it ends the set.
        die_with_parent(signal.SIGCONT)
        self._agent = _pidfd_of(agent_pid)
        # If the parent is not the agent, the end of the command pipe reports the agent's death.
        if is_child and os.getppid() != agent_pid:
            os._exit(0)  # the agent has ended, and no worker has begun
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._tell = Reports(reports, self._watch, self._forget).tell
        self._hearing = ConsoleRelay(self._shared, self._watch, self._forget)

    def run(self) -> None:
        self._watch(self._commands, self._obey)
        self._watch(self._child_exits, self._reap)
        if self._agent is not None:
            self._watch(self._agent, self._agent_died)
        self._start_all()
        while self._has_children():
            self._check_fence()
            self._check_deadline()
            self._wait()
        self._fence = None  # no process is left to kill
        self._hearing.finish()
        while not self._is_shown():
            self._wait()
            self._check_deadline()
        os.set_blocking(self._reports, True)
        self._tell("gone")
        if self._will is not None and self._has_agent_ended and self._has_proof:
            become_will(self._will)

    def _step(self, event: object) -> None:
        for effect, signum in self._life.step(event, time.monotonic()):
            self._effects[effect](signum)

    def _check_fence(self) -> bool:
        """Kill the set if it has lived for too long. False if it has."""
        self._fence = read_fence(self._shared) if self._life.phase in HEED_FENCE else None
        if self._fence is None or time.monotonic() < self._fence:
            return True
        self._fence = None
        self._step(FencePassed())
        return False

    def _check_deadline(self) -> None:
        if self._life.deadline is not None and time.monotonic() >= self._life.deadline:
            self._step(DeadlinePassed(self._hearing.shown_bytes))

    def _wait(self) -> None:
        self._handle_ready(self._wait_ms())

    def _handle_ready(self, wait_ms: int | None) -> None:
        for fd, _ in self._poll.poll(wait_ms):
            if fd in self._handlers:  # a handler of this round may have removed it
                self._handlers[fd]()

    def _watch(self, fd: int, handler: Callable[[], object], events: int = select.POLLIN) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def _forget(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _wait_ms(self) -> int | None:
        times = [at for at in (self._life.deadline, self._fence) if at is not None]
        return poll_ms(min(times) - time.monotonic()) if times else None

    # Starting

    def _start_all(self) -> None:
        """Fork every worker. When `starting` reaches its end, all workers run their programs: each holds the other end
        until its exec closes it. Signals are blocked meanwhile, so that a child receives its signals only when it
        treats them as its program expects.
        """
        starting, held_until_exec = os.pipe2(os.O_CLOEXEC)

        def started() -> None:
            self._forget(starting)
            os.close(starting)
            self._tell("started")

        for launch in self._launches:
            if not self._may_start():
                break
            self._hearing.open(launch)
            try:
                pid = os.fork()
            except OSError as error:
                self._hearing.forked(launch.rank)
                self._tell(f"error {launch.rank} {error.errno} fork")
                break
            if pid == 0:
                os.close(starting)
                self._become(launch, held_until_exec)
                raise Becoming(launch)
            self._hearing.forked(launch.rank)
            self._ranks[pid] = launch.rank
            self._tell(f"pid {launch.rank} {pid}")
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(held_until_exec)
        self._watch(starting, started)

    def _may_start(self) -> bool:
        """Whether to fork the next worker. Many workers take seconds to start, and meanwhile the agent may die, ask for
        a stop, or be stopped itself until the fence has passed.
        """
        self._handle_ready(0)
        return self._check_fence() and self._life.phase == RUNNING

    def _become(self, launch: Launch, starting: int) -> None:
        """In the worker. Returns only if it becomes its program in this process."""
        program = launch.program
        code: int | None = PROGRAM_NOT_STARTED
        try:
            self._prepare(launch, starting)
            if launch.in_process:
                self._let_go(starting)
                procfs.rename(self._name)
                code = None
            elif callable(program):
                self._let_go(starting)
                procfs.rename(self._name)
                code = call(program, launch.env)
            else:
                os.execvpe(program[0], list(program), for_this_process(launch.env))  # noqa: S606 - no shell wanted
        except OSError as error:
            # For a command, the name as given says more than the last place that was searched.
            is_log = error.filename in (launch.stdout, launch.stderr)
            path = error.filename if is_log or callable(program) else program[0]
            os.set_blocking(self._reports, True)
            self._tell(f"error {launch.rank} {error.errno} {path}")
        except BaseException:  # noqa: BLE001 - a worker must not continue as a second keeper
            sys.excepthook(*sys.exc_info())
        finally:
            if code is not None:
                os._exit(code)

    def _prepare(self, launch: Launch, starting: int) -> None:
        """Set up what the program starts with: its session, its streams, its descriptors, its signals."""
        signal.set_wakeup_fd(-1)
        os.setsid()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(PROGRAM_NOT_STARTED)
        if self._will is not None:
            os.close(self._will.fd)  # it holds the agent's secrets
        heard = self._hearing.connect(launch.rank)
        for path, fd in ((launch.stdout, 1), (launch.stderr, 2)):
            if path and fd not in heard:
                append_to(path, fd)
        if launch.fds is not None:
            keep_only({self._reports, starting, *launch.fds})
            for fd in launch.fds:
                os.set_inheritable(fd, True)
        self._signals.restore()

    def _let_go(self, starting: int) -> None:
        """Close what an exec would have closed."""
        for fd in {*self._handlers, *self._hearing.fds(), self._wakeup, self._reports, starting}:
            with suppress(OSError):  # closed before, by `keep_only`
                os.close(fd)

    # Watching

    def _reap(self) -> None:
        os.read(self._child_exits, 4096)
        if self._has_children():
            self._step(ChildrenChanged(len(self._ranks)))

    def _has_children(self) -> bool:
        """Reap ended children. False proves that no process of the set is alive."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self._signalled.discard(pid)
                rank = self._ranks.pop(pid, None)
                if rank is not None:
                    code, now = os.waitstatus_to_exitcode(status), time.time()
                    self._step(WorkerExited(code))
                    end = self._hearing.end_of(rank)
                    if code and end:
                        self._tell(f"heard {rank} {end.hex()}")
                    self._tell(f"exit {rank} {code} {now:.6f} {usage.ru_maxrss}")
        except ChildProcessError:
            if self._life.phase in HAVE_PROCESSES:
                self._step(AllGone(self._hearing.shown_bytes))
            return False

    # Stopping

    def _obey(self) -> None:
        data = os.read(self._commands, 4096)
        if not data:
            self._agent_died()
            return
        *lines, self._command = (self._command + data).split(b"\n")
        for line in lines:
            match line.split():
                case [b"stop", signum, grace_s]:
                    self._has_children()
                    self._step(Stop(int(signum), float(grace_s), len(self._ranks)))
                case [b"fence"]:
                    pass  # it only wakes us up: the fence is read before the next wait
                case [b"again"]:
                    self._tell("again")
                case unknown:
                    raise AssertionError(f"the agent said {unknown!r}")

    def _tell_stopping(self) -> None:
        ending = [str(rank) for pid, rank in self._ranks.items() if is_ending(pid)]
        self._tell(f"stopping {' '.join(ending)}")

    def _kill(self, signum: int) -> None:
        self._signalled.clear()
        self._signal_workers(signum)
        self._signal_children(signum)

    def _signal_workers(self, signum: int) -> None:
        for pid in self._ranks:
            signal_group(pid, signum)

    def _signal_children(self, signum: int) -> None:
        """Signal the current children, each once. Later ones are adopted when their parent exits."""
        for pid in set(children()) - self._signalled:
            self._signalled.add(pid)
            try:
                os.kill(pid, signum)
                os.kill(pid, signal.SIGCONT)
            except PermissionError:
                pass  # it changed its user; in the end `stuck` names it

    def _agent_died(self) -> None:
        self._forget(self._commands)
        if self._agent is not None:
            self._forget(self._agent)
        self._has_children()
        self._step(AgentDied())
        if self._agent is not None:
            # Only a dead agent has a last will. A living one may have started other workers, and needs its lease.
            ended = select.poll()
            ended.register(self._agent, select.POLLIN)
            self._has_agent_ended = bool(ended.poll(poll_ms(AGENT_END_WAIT_S)))

    # The end

    def _is_shown(self) -> bool:
        """Whether the workers' last lines are on the console, or were waited for long enough. They are shown before the
        workers are reported gone.
        """
        if self._life.phase != ENDED and self._hearing.is_all_shown:
            self._step(AllShown())
        return self._life.phase == ENDED


def _leave_the_agents_terminal() -> None:
    os.setsid()
    procfs.rename("holdfast-keeper")


def _pidfd_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
