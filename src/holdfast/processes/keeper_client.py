"""The agent's end of a keeper: a set of processes as one readable descriptor."""

from __future__ import annotations

import _thread
import os
import select
import signal
import time
from contextlib import suppress

from holdfast.processes.children import end_sessions, is_child
from holdfast.processes.console_relay import COUNT_BYTES, counts_offset
from holdfast.processes.fence import FenceGuard, write_fence
from holdfast.processes.interruption import Uninterrupted, handlers
from holdfast.processes.keeper_start import plain, start_keeper
from holdfast.processes.keeper_states import KILL_WAIT_S
from holdfast.processes.standard_streams import open_missing
from holdfast.waiting import poll_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from holdfast.processes.interruption import SignalWakeUp
    from holdfast.processes.launch import LastWill, Launch

    class KeeperSource(Protocol):
        """A process that has imported what workers need, and forks them: see `holdfast.warm`."""

        def is_ready(self) -> bool:
            """Whether it can be used now; waits until that is known."""

        def fork_keeper(
            self,
            launches: list[tuple[object, ...]],
            ends: tuple[int, int, int],
            fds: Sequence[int],
            will: LastWill | None,
        ) -> tuple[int, int]:
            """Fork a keeper from it. Returns the process id, and a pidfd.

            Raises:
                NoTemplateError: it cannot; a `LostTemplateError` if it may have done so without an answer.
            """


FENCE_SPARE_S = 0.02
"""How long after the fence the keeper may take to report that it kills the set, before the agent steps in ..."""

KEEPER_WAIT_S = 0.08
"""... and how long a keeper that got SIGCONT may take, before it is killed, and the set with it. A lease ends a tenth
of its time after the fence: 0.3 s."""

LOST_WAIT_S = 15.0
"""How long a set may take to end that a lost template may have forked: its keeper needs a second to see that its agent
lives on, and then `KILL_WAIT_S` at most.
"""

_READ_BYTES = 65536


class NoTemplateError(Exception):
    """The template cannot fork this set; start it the ordinary way."""


class LostTemplateError(NoTemplateError):
    """The template died or did not answer. It may have forked the set before."""


class Exit:
    """How a process ended. `code` is minus the signal's number if a signal ended it. `monotonic` is when the exit was
    reported.
    """

    __slots__ = ("code", "max_rss_kib", "monotonic", "on_its_own", "timestamp")

    def __init__(self, code: int, timestamp: float, max_rss_kib: int, *, on_its_own: bool) -> None:
        self.code = code
        self.monotonic = time.monotonic()
        self.timestamp = timestamp
        self.max_rss_kib = max_rss_kib
        self.on_its_own = on_its_own


class KeeperClient:
    """A running set. Its state changes only in `update`, so the caller decides when."""

    def __init__(
        self,
        launches: Sequence[Launch],
        fence_at: float | None = None,
        template: KeeperSource | None = None,
        will: LastWill | None = None,
    ) -> None:
        self.pids: dict[int, int] = {}
        self.exits: dict[int, Exit] = {}
        self.heard: dict[int, str] = {}
        """By rank, the end of a failed process's stderr, if that is not a file."""
        self.started_at = time.monotonic()
        self.error: OSError | None = None
        self.is_started = False
        self.is_gone = False
        self.keeper_died = False
        self.is_fenced = False
        self.stuck: tuple[int, ...] | None = None
        self._stopping = False
        self._ending: set[int] = set()
        self._report = b""
        self._reports_read = 0
        self._users = 0
        self._closed = False
        self._keeper_fd = -1
        # Reentrant: a user's signal handler may close the set while the same thread is in here.
        self._lock = _thread.RLock()
        # For sections that cannot block, and threads that must not wait for the other lock.
        self._open_lock = _thread.allocate_lock()
        self._fence_at = float("inf")
        self._guard: FenceGuard | None = None
        self._ranks = [launch.rank for launch in launches]

        open_missing()
        fds: list[int] = []
        try:
            fds += os.pipe()
            fds += os.pipe()
            fds.append(os.memfd_create("holdfast-set"))
            commands, self._commands, self._reports, reports, self._shared = fds
            os.set_blocking(self._reports, False)
            os.set_blocking(self._commands, False)
            if fence_at is not None:  # written before the start: this process may be stopped before it can send it
                write_fence(self._shared, fence_at)
                self._fence_at = fence_at
            ends = (commands, reports, self._shared)
            if template is None:
                self.keeper_pid = start_keeper(launches, ends, (self._commands, self._reports), will)
            else:
                passed = [fd for launch in launches for fd in launch.fds or ()]
                plains = [plain(launch) for launch in launches]
                self.keeper_pid, self._keeper_fd = template.fork_keeper(plains, ends, passed, will)
        except BaseException as error:
            _abandon(fds, is_lost=isinstance(error, LostTemplateError))
            raise
        os.close(commands)
        os.close(reports)

    def fileno(self) -> int:
        """Readable when `update` has something to read, and at the end."""
        return self._reports

    def stop(self, signum: int, grace_s: float) -> None:
        """Request the end of the set; after a second call, the earlier deadline holds. Returns at once."""
        with self._lock:
            if not self.is_gone:
                with suppress(ProcessLookupError):
                    self._continue_keeper()
                self._command(b"stop %d %f\n" % (signum, grace_s))

    def _continue_keeper(self) -> None:
        """Send SIGCONT: the keeper may have been stopped."""
        self._signal_keeper(signal.SIGCONT)

    def _signal_keeper(self, signum: int) -> None:
        if self._keeper_fd >= 0:
            signal.pidfd_send_signal(self._keeper_fd, signum)
        elif is_child(self.keeper_pid):  # unreaped, unless the user's code waits for every child of this process
            os.kill(self.keeper_pid, signum)

    def _command(self, line: bytes) -> None:
        """Write to the keeper. A keeper that has ended has nothing left to stop. One that has not read thousands of
        lines is stopped itself, and will find enough of them.
        """
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._commands, line)

    def fence(self, at: float) -> None:
        """Let the set live until this monotonic time, or until a later fence. Any thread may call it; never blocks."""
        with self._open_lock:
            if self.is_gone or self._shared < 0:
                return
            write_fence(self._shared, at)
            is_earlier, self._fence_at = at < self._fence_at, at
            if is_earlier:  # a later fence is read when the old one is due
                self._command(b"fence\n")
        self.guard_fence()
        if is_earlier and self._guard is not None:
            self._guard.wake()

    def guard_fence(self) -> None:
        """Watch the fence beside the keeper, if there is one. RuntimeError if no thread can start: end the set then."""
        with self._open_lock:
            if self._guard is None and self._fence_at < float("inf") and not self.is_gone and not self._closed:
                self._guard = FenceGuard(self)

    @property
    def is_overdue(self) -> bool:
        """Whether the fence has passed and the keeper has not reported in time that it kills the set."""
        return not self.is_fenced and not self.is_gone and self.overdue_in_s() <= 0

    def overdue_in_s(self) -> float:
        return self._fence_at + FENCE_SPARE_S - time.monotonic()

    def enforce_fence(self) -> None:
        """End an overdue set without its keeper, which is stopped, or gets no CPU time. SIGKILL works on a stopped
        process too. The kernel then ends the workers, and their groups are killed here.
        """
        if self._hear_until(lambda: not self.is_overdue, time.monotonic()):
            return
        self.continue_keeper()
        if self._hear_until(lambda: not self.is_overdue, time.monotonic() + KEEPER_WAIT_S):
            return
        with self._lock:
            if self.is_overdue:
                self._stopping = self.is_fenced = True
                with suppress(ProcessLookupError):
                    self._signal_keeper(signal.SIGKILL)
        self._hear_until(lambda: self.is_gone, time.monotonic() + KILL_WAIT_S)

    def continue_keeper(self) -> None:
        """Send SIGCONT: the keeper may have been stopped. While it is, it reports no exits."""
        with self._lock, suppress(ProcessLookupError):
            if not self.is_gone and not self._closed:
                self._continue_keeper()

    def _hear_until(self, is_true: Callable[[], bool], deadline: float) -> bool:
        """Read the keeper's reports, in a thread of its own, until `is_true` or the deadline.

        Another thread may wait for the same reports, and would not wake up for those that were read here. So the keeper
        is asked for one more.
        """
        with self._lock:
            if self._reports < 0:
                return True
            self._users += 1
            known = self._reports_read
        try:
            poll = select.poll()
            poll.register(self._reports, select.POLLIN)
            while True:
                self.update()
                wait_s = deadline - time.monotonic()
                if is_true() or self.is_gone or wait_s <= 0:
                    return is_true() or self.is_gone
                poll.poll(poll_ms(wait_s))
        finally:
            with self._lock:
                if self._reports_read > known and not self.is_gone:
                    self._command(b"again\n")
                self._users -= 1
                self._release()

    def output_bytes(self) -> dict[int, int]:
        """By rank, how many bytes the keeper has read so far: all of stderr if it is not a file, and stdout if both are
        the same console.
        """
        with self._lock:
            data = b"" if self._shared < 0 else os.pread(self._shared, counts_offset(max(self._ranks) + 1), 0)
        return {
            rank: int.from_bytes(data[counts_offset(rank) : counts_offset(rank) + COUNT_BYTES], "little")
            for rank in self._ranks
        }

    def wait_until(self, is_true: Callable[[], bool], deadline: float | None, signals: SignalWakeUp) -> None:
        """Wait until `is_true()`, or until the monotonic `deadline`. Call it in a critical section: `signals` ends the
        system call, and a signal raises at one point only, unless that section is in another one.
        """
        with self._lock:
            self._users += 1
        try:
            poll = select.poll()
            for fd in (self._reports, signals.fd):
                if fd is not None and fd >= 0:
                    poll.register(fd, select.POLLIN)
            while True:
                self.update()
                wait_s = None if deadline is None else deadline - time.monotonic()
                if is_true() or self.is_gone or (wait_s is not None and wait_s <= 0):
                    return
                handlers.raise_pending(sections=1)
                poll.poll(poll_ms(wait_s))
                signals.drain()
        finally:
            with self._lock:
                self._users -= 1
                self._release()

    def close(self) -> None:
        """Release the keeper: the set is gone, or cannot be ended."""
        with self._lock:
            self._closed = True
            if self._guard is not None:
                self._guard.wake()
            self._release()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def update(self) -> None:
        """Process the keeper's reports so far, without blocking."""
        with Uninterrupted(), self._lock:
            while not self.is_gone:
                try:
                    data = os.read(self._reports, _READ_BYTES)
                except BlockingIOError:
                    return
                *lines, self._report = (self._report + data).split(b"\n")
                self._reports_read += len(lines)
                for line in lines:
                    self._learn(*os.fsdecode(line).split(" ", 1))
                if not data and not self.is_gone:
                    self._lose_keeper()

    def _learn(self, kind: str, text: str = "") -> None:  # noqa: C901 - one case for each kind of report
        match kind:
            case "pid":
                rank, pid = map(int, text.split())
                self.pids[rank] = pid
            case "error":
                _, errno, path = text.split(" ", 2)
                self.error = OSError(int(errno), os.strerror(int(errno)), path)
            case "started":
                self.is_started = True
            case "heard":
                rank_text, _, end = text.partition(" ")
                self.heard[int(rank_text)] = bytes.fromhex(end).decode("utf-8", "backslashreplace")
            case "exit":
                rank_text, code, timestamp, max_rss_kib = text.split()
                self.exits[int(rank_text)] = Exit(
                    int(code),
                    float(timestamp),
                    int(max_rss_kib),
                    on_its_own=not self._stopping or int(rank_text) in self._ending,
                )
            case "stopping":
                self._stopping = True
                self._ending.update(map(int, text.split()))
            case "fenced":
                self.is_fenced = True
            case "stuck":
                self.stuck = tuple(map(int, text.split()))
            case "gone":
                self._end()
            case "again":
                pass  # it only wakes up the thread that waits for reports
            case _:
                raise AssertionError(f"the keeper said {kind!r}")

    def _lose_keeper(self) -> None:
        """The keeper was killed, and the kernel kills its workers. Kill their groups and sessions too, and wait.

        The next set may start when this one is gone, so a worker that takes long to end must not run beside it. A
        worker that the keeper had not started yet counts as killed, too.
        """
        self.keeper_died = True
        lost = [rank for rank in self._ranks if rank not in self.exits]
        left = end_sessions({self.pids[rank] for rank in lost if rank in self.pids}, KILL_WAIT_S)
        if left:
            self.stuck = left
        for rank in lost:
            self.exits[rank] = Exit(-signal.SIGKILL, time.time(), 0, on_its_own=not self._stopping)
        self._end()

    def _end(self) -> None:
        self.is_started = self.is_gone = True
        if self._guard is not None:
            self._guard.wake()
        with suppress(ProcessLookupError):  # it has nothing left to do; if it was stopped, waiting would block
            self._signal_keeper(signal.SIGKILL)
        if self._keeper_fd >= 0:
            poll = select.poll()
            poll.register(self._keeper_fd, select.POLLIN)
            poll.poll()  # its parent is the template
            return
        with suppress(ChildProcessError):  # the user's code waits for every child of this process
            os.waitpid(self.keeper_pid, 0)

    def _release(self) -> None:
        """Close the descriptors when no thread waits on them."""
        if self._closed and not self._users and self._reports >= 0:
            with self._open_lock:
                for fd in (self._reports, self._commands, self._shared):
                    os.close(fd)
                self._reports = self._commands = self._shared = -1
            if self._keeper_fd >= 0:
                os.close(self._keeper_fd)
                self._keeper_fd = -1


def _abandon(fds: Sequence[int], *, is_lost: bool) -> None:
    """Close the descriptors of a set that was not started. If it `is_lost`, wait until it is certain that it is not."""
    reports = fds[2:3] if is_lost else ()
    for fd in fds:
        if fd not in reports:
            os.close(fd)  # a keeper without these ends its set
    for fd in reports:
        try:
            _wait_for_end(fd)
        finally:
            os.close(fd)


def _wait_for_end(reports: int) -> None:
    """Wait until no process has the other end of this pipe: the set that it is for has ended, or was never forked.

    Raises:
        InfrastructureError: it takes too long.
    """
    deadline = time.monotonic() + LOST_WAIT_S
    poll = select.poll()
    poll.register(reports, select.POLLIN)
    while True:
        try:
            if not os.read(reports, _READ_BYTES):
                return
        except BlockingIOError:
            pass
        wait_s = deadline - time.monotonic()
        if wait_s <= 0:
            break
        poll.poll(poll_ms(wait_s))
    from holdfast.errors.tree import InfrastructureError

    raise InfrastructureError(
        f"the template of warm workers did not answer, and workers that it may have started did not end within "
        f"{LOST_WAIT_S:g} s; no other set may run beside it. Look for them with `ps`, or start without --warm"
    )
