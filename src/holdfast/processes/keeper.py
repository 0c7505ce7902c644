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

The agent writes the first two of these lines, and the keeper writes the others:

    stop SIGNAL GRACE_S          end the set: the signal to all, SIGKILL after the grace
    fence                        read the fence: it is earlier than before

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
from holdfast.processes.launch import Becoming, call
from holdfast.processes.prctl import adopt_orphans, die_with_parent
from holdfast.processes.signal_setup import ignore_signals
from holdfast.waiting import poll_ms
from holdfast.worker.injection import for_this_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import NoReturn, TypeAlias

    from holdfast.processes.launch import LastWill, Launch
    from holdfast.processes.signal_setup import SignalSetup

    Ends: TypeAlias = tuple[int, int, int]
    """The keeper's ends of its channels to the agent: the commands, the reports, and the file with the fence and the
    byte counts.
    """

LEFTOVER_GRACE_S = 1.0
"""How long processes that outlive the workers have after the stop signal. Python's resource tracker, for one, ignores
SIGTERM and unlinks shared memory once its clients are gone."""

KILL_WAIT_S = 10.0
"""How long after SIGKILL the keeper reports processes that do not end (uninterruptible, or not ours to kill)."""

CONSOLE_PATIENCE_S = 5.0
"""How long a set that failed or was stopped waits for a console that accepts nothing. A set that ended well waits as
its workers would have: for a person with a pager, as long as it takes.
"""

KILLED_CONSOLE_PATIENCE_S = 1.0
"""... in all, if the set was killed or stops without grace: the user is in a hurry, or absent."""

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
        self._stop_signal = 0
        self._killing = False
        self._ended_well = True
        self._deadline: float | None = None
        self._fence: float | None = None
        self._signalled: set[int] = set()
        self._untold = b""
        self._name = procfs.name()

        os.set_blocking(reports, False)
        _leave_the_agents_terminal()
        if all(launch.fds is not None for launch in launches):
            # A keeper that is a copy of the agent must not hold the agent's sockets and files open.
            wills = () if will is None else (will.fd,)
            _keep_only({*ends, *wills, *(fd for launch in launches for fd in launch.fds or ())})
        self._child_exits, self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        ignore_signals()
        self._has_proof = adopt_orphans()
        # If this process was stopped and then the agent killed, the kernel continues it, so that it ends the set.
        die_with_parent(signal.SIGCONT)
        self._agent = _pidfd_of(agent_pid)
        # If the parent is not the agent, the end of the command pipe reports the agent's death.
        if is_child and os.getppid() != agent_pid:
            raise SystemExit("the agent ended before its keeper began")
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._hearing = ConsoleRelay(self._shared, self._watch, self._forget)

    def run(self) -> None:
        self._watch(self._commands, self._obey)
        self._watch(self._child_exits, self._reap)
        if self._agent is not None:
            self._watch(self._agent, self._agent_died)
        self._start_all()
        while self._has_children():
            self._fence = None if self._killing else read_fence(self._shared)
            now = time.monotonic()
            if self._fence is not None and now >= self._fence:
                self._fence_passed()
            if self._deadline is not None and now >= self._deadline:
                self._deadline_passed()
            self._wait()
        self._fence = None  # no process is left to kill
        self._show_the_rest()
        os.set_blocking(self._reports, True)
        self._tell("gone")
        if self._will is not None and self._has_agent_ended and self._has_proof:
            _become_will(self._will)

    def _wait(self) -> None:
        for fd, _ in self._poll.poll(self._wait_ms()):
            if fd in self._handlers:  # a handler of this round may have removed it
                self._handlers[fd]()

    def _watch(self, fd: int, handler: Callable[[], object], events: int = select.POLLIN) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def _forget(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _wait_ms(self) -> int | None:
        times = [at for at in (self._deadline, self._fence) if at is not None]
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
                _append_to(path, fd)
        if launch.fds is not None:
            _keep_only({self._reports, starting, *launch.fds})
            for fd in launch.fds:
                os.set_inheritable(fd, True)
        self._signals.restore()

    def _let_go(self, starting: int) -> None:
        """Close what an exec would have closed."""
        for fd in {*self._handlers, *self._hearing.fds(), self._wakeup, self._reports, starting}:
            with suppress(OSError):  # closed before, by `_keep_only`
                os.close(fd)

    # Watching

    def _reap(self) -> None:
        os.read(self._child_exits, 4096)
        if not self._has_children():
            return
        if self._killing:
            self._signal_children(signal.SIGKILL)
        elif self._stop_signal and not self._ranks:
            self._stop_leftovers()

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
                    self._ended_well = self._ended_well and not code
                    end = self._hearing.end_of(rank)
                    if code and end:
                        self._tell(f"heard {rank} {end.hex()}")
                    self._tell(f"exit {rank} {code} {now:.6f} {usage.ru_maxrss}")
        except ChildProcessError:
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
                    self._stop(int(signum), float(grace_s))
                case [b"fence"]:
                    pass  # it only wakes us up: the fence is read before the next wait
                case unknown:
                    raise AssertionError(f"the agent said {unknown!r}")

    def _stop(self, signum: int, grace_s: float) -> None:
        if self._killing:
            return
        if not self._has_children():
            # Only the console is left to wait for. A second stop means: do not wait for that either.
            if self._stop_signal or not self._ended_well:
                self._end_by(max(min(grace_s, CONSOLE_PATIENCE_S), KILLED_CONSOLE_PATIENCE_S))
            self._stop_signal = signum
            return
        if not self._stop_signal:
            self._ended_well = self._ended_well and not self._ranks
            ending = [str(rank) for pid, rank in self._ranks.items() if is_ending(pid)]
            self._tell(f"stopping {' '.join(ending)}")
        self._stop_signal = signum
        for pid in self._ranks:
            signal_group(pid, signum)
        self._end_by(grace_s)
        if not self._ranks:
            self._stop_leftovers()

    def _stop_leftovers(self) -> None:
        """The workers are gone, and we have adopted what they left: send the same signal, with a short grace."""
        self._signal_children(self._stop_signal)
        self._end_by(LEFTOVER_GRACE_S)

    def _end_by(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _deadline_passed(self) -> None:
        if self._killing:
            self._deadline = None
            self._tell(f"stuck {' '.join(map(str, children()))}")
        else:
            self._kill()

    def _fence_passed(self) -> None:
        """Others may start the same work from now on, so there is no grace period."""
        self._fence = None
        if not self._killing:
            if not self._stop_signal:
                self._tell("stopping")
            self._tell("fenced")
            self._kill()

    def _kill(self) -> None:
        self._killing = True
        self._deadline = time.monotonic() + KILL_WAIT_S
        self._signalled.clear()
        for pid in self._ranks:
            signal_group(pid, signal.SIGKILL)
        self._signal_children(signal.SIGKILL)

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
        """Kill the set: no grace without an agent, and another agent may be about to start the same work."""
        self._forget(self._commands)
        if self._agent is not None:
            self._forget(self._agent)
        if not self._has_children():
            self._end_by(KILLED_CONSOLE_PATIENCE_S)
        elif not self._killing:
            self._kill()
        if self._agent is not None:
            # Only a dead agent has a last will. A living one may have started other workers, and needs its lease.
            ended = select.poll()
            ended.register(self._agent, select.POLLIN)
            self._has_agent_ended = bool(ended.poll(poll_ms(AGENT_END_WAIT_S)))

    # The end

    def _show_the_rest(self) -> None:
        """Let the console show the workers' last lines before they are reported gone. A console that accepts nothing is
        waited for no longer than the agent, or our patience, allows.
        """
        self._hearing.finish()
        patience_s = CONSOLE_PATIENCE_S
        if self._killing:
            patience_s = KILLED_CONSOLE_PATIENCE_S
        elif self._ended_well:
            patience_s = float("inf")
        patience_ends = self._deadline = time.monotonic() + patience_s
        shown = self._hearing.shown_bytes
        while not self._hearing.is_all_shown:
            self._wait()
            if time.monotonic() < self._deadline:
                continue
            is_in_a_hurry = self._killing or self._deadline < patience_ends
            if is_in_a_hurry or shown == self._hearing.shown_bytes:
                return
            shown = self._hearing.shown_bytes
            patience_ends = self._deadline = time.monotonic() + patience_s

    def _tell(self, line: str) -> None:
        """Report to the agent. If it does not read, the rest is kept: the keeper must not block."""
        self._untold += os.fsencode(line.replace("\n", "?")) + b"\n"
        self._tell_what_is_kept()

    def _tell_what_is_kept(self) -> None:
        try:
            while self._untold:
                self._untold = self._untold[os.write(self._reports, self._untold) :]
        except BlockingIOError:
            self._handlers[self._reports] = self._tell_what_is_kept
            self._poll.register(self._reports, select.POLLOUT)
            return
        except BrokenPipeError:
            self._untold = b""  # the agent is gone; its pidfd or its command pipe reports that
        if self._reports in self._handlers:
            self._forget(self._reports)


def _keep_only(fds: Collection[int]) -> None:
    """Close every descriptor but the standard ones and `fds`, and make `fds` not inheritable."""
    procfs.close_descriptors(fds)
    for fd in fds:
        os.set_inheritable(fd, False)


def _become_will(will: LastWill) -> None:
    """Become the last will's command. Returns only if it cannot be executed; then the will is not carried out."""
    _keep_only({will.fd})
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nowhere, fd)  # readers of the agent's output must not wait for us
    os.set_inheritable(will.fd, True)
    with suppress(OSError):
        os.execv(will.command[0], [*will.command, str(will.fd)])  # noqa: S606 - no shell wanted


def _leave_the_agents_terminal() -> None:
    os.setsid()
    procfs.rename("holdfast-keeper")


def _pidfd_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _append_to(path: str, fd: int) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(opened, fd)
    os.close(opened)
