"""A set of processes from start to end, as seen by the program that started it."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import suppress

from holdfast.errors.notice import notice
from holdfast.files import open_append
from holdfast.processes.interruption import SignalException, SignalWakeUp, Uninterrupted, handlers
from holdfast.processes.keeper_client import KeeperClient, NoTemplateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self, TextIO

    from holdfast.errors import ProcessFailure
    from holdfast.errors.diagnosis import Evidence
    from holdfast.processes.keeper_client import Exit, KeeperSource
    from holdfast.processes.launch import LastWill, Launch
    from holdfast.processes.logs import LogsSpecs
    from holdfast.processes.oom import OomWatch
    from holdfast.processes.tail import TailLog

FILTERED_LOG_MODE = 0o666
"""Before the umask, as for the other logs."""

CATCH_UP_MAX_S = 10.0
"""How long a set that failed or was stopped waits for a slow console to show its last lines. A set that ended well
waits as long as the console accepts any.
"""

SHUTDOWN_TIMEOUT_S = 30
"""The default time between the stop signal and SIGKILL."""


class RunProcsResult:
    """How a set ended: what each process returned, or which ones failed by themselves, and where their output is.

    `terminated` has the exit codes of processes that were stopped, because a sibling failed or the set was closed.
    They are neither successes nor failures. `late_crashes` has the processes that crashed during interpreter shutdown,
    after their program had ended well. They count as successes.
    """

    __hash__ = None  # type: ignore[assignment]  # the fields are mutable

    def __init__(
        self,
        return_values: dict[int, Any] | None = None,
        failures: dict[int, ProcessFailure] | None = None,
        stdouts: dict[int, str] | None = None,
        stderrs: dict[int, str] | None = None,
        terminated: dict[int, int] | None = None,
        late_crashes: dict[int, ProcessFailure] | None = None,
    ) -> None:
        self.return_values = return_values or {}
        self.failures = failures or {}
        self.stdouts = stdouts or {}
        self.stderrs = stderrs or {}
        self.terminated = terminated or {}
        self.late_crashes = late_crashes or {}

    def is_failed(self) -> bool:
        """Whether a process has failed."""
        return bool(self.failures)

    def __repr__(self) -> str:
        return f"RunProcsResult({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunProcsResult) and vars(self) == vars(other)


class PContext:
    """A set of processes that is started, waited for and closed as one.

    `start_processes` creates one. As a context manager, it closes at the end. For callers with their own event loop,
    `fileno` is readable when `wait(0)` may have news.
    """

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any] | str,
        args: Mapping[int, tuple[Any, ...]],
        envs: Mapping[int, Mapping[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: object = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        check_ranks(name, args=args, envs=envs)
        if numa_options is not None:
            notice(f"{name}: workers are not bound to NUMA nodes; holdfast does not do that yet")
        self.name = name
        self.entrypoint = entrypoint
        self.args = args
        self.nprocs = len(args)
        self.shutdown_timeout = _check_seconds("shutdown_timeout", shutdown_timeout)
        self.envs = {rank: dict(env) for rank, env in envs.items()}
        self.logs = logs_specs.reify(self.envs)
        self._log_line_prefixes = log_line_prefixes
        self._filters = (duplicate_stdout_filters, duplicate_stderr_filters)
        self._tails: list[TailLog] = []
        self._filtered_logs: list[TextIO] = []
        self._is_in_a_hurry = False
        self._keeper: KeeperClient | None = None
        self.template: KeeperSource | None = None
        """The template to fork the processes from. Set it before the start; it is used if it is ready then."""
        self.before_stop: Callable[[list[int]], None] | None = None
        """Called when a process has failed, just before the others are stopped, with the ranks that still run."""
        self._disturbed: dict[int, float] = {}
        self.will: LastWill | None = None
        """The command to run when this process has died and no process of the set is left. Set it before the start."""
        self.strict_exit = False
        """Whether a crash after a good end of the program counts as a failure."""
        self._is_late: dict[int, bool] = {}
        self._is_warm = False
        self._oom_watch: OomWatch | None = None
        self._fence_at: float | None = None
        self._stopped_at = float("inf")
        self._result: RunProcsResult | None = None
        self._finishing = _thread.RLock()
        self._owner_pid = os.getpid()

    # For subclasses

    def _launches(self) -> list[Launch]:
        """The programs of the set."""
        raise NotImplementedError

    def _return_value(self, rank: int) -> Any:
        """The return value of `rank`, whose process exited with 0."""
        raise NotImplementedError

    def _ended_well(self, rank: int) -> bool:
        """Whether the program of `rank` ended well before its process ended."""
        from holdfast.processes.postmortem import has_ended_well

        assert self._keeper is not None
        return has_ended_well(self.envs[rank], self._keeper.pids[rank])

    def _release(self) -> None:
        """Free the set's resources; its processes are gone."""

    def _environment(self, rank: int) -> dict[str, str]:
        """The whole environment of a process."""
        for name, value in self.envs[rank].items():
            check_text(f"{self.name}: rank {rank}: environment variable {name!r}", value)
            if not name or "=" in check_text(f"{self.name}: rank {rank}: environment", name):
                raise _input_error(f"{self.name}: rank {rank}: an environment variable cannot be called {name!r}")
        return {**os.environ, **self.envs[rank]}

    # Starting

    def start(self) -> None:
        """Start all processes, or none: if one cannot start, its error is raised, such as FileNotFoundError."""
        if self._keeper is not None or self._result is not None:
            raise ValueError(f"{self.name} was started before; make another context to start it again")
        handlers.install()
        try:
            self._start()
        except BaseException as error:
            self._give_up(error.sigval if isinstance(error, SignalException) else signal.SIGTERM)
            raise

    def _start(self) -> None:
        self._is_warm = self.template is not None and self.template.is_ready()
        with Uninterrupted():
            said = self._fence_at
            self._keeper = keeper = self._keep()
            # A fence that was set meanwhile found no keeper. Loop, as another one may be set now.
            while said != self._fence_at:
                said = self._fence_at
                assert said is not None
                keeper.fence(said)
        self._wait_until(lambda: keeper.is_started)
        if keeper.error is not None:
            raise keeper.error
        if keeper.keeper_died:
            from holdfast.errors import InfrastructureError

            raise InfrastructureError(f"{self.name}: the keeper, PID {keeper.keeper_pid}, was killed as it began")
        from holdfast.processes.oom import OomWatch

        with Uninterrupted():
            self._oom_watch = OomWatch(keeper.pids.values())
        self._start_tails()

    def _keep(self) -> KeeperClient:
        if self._is_warm:
            try:
                return KeeperClient(self._launches(), self._fence_at, self.template, self.will)
            except NoTemplateError:
                self._is_warm = False
                self._release()
        return KeeperClient(self._launches(), self._fence_at, will=self.will)

    def _give_up(self, death_sig: signal.Signals) -> None:
        """Close a set that the caller will never see. Another signal ends the grace period."""
        try:
            self.close(death_sig)
        except SignalException:
            with Uninterrupted():
                self.close(timeout=0)
            raise

    def _start_tails(self) -> None:
        """Not before the processes are forked: tails start threads."""
        logs = self.logs
        for paths, console, filtered_log, filters in (
            (logs.tee_stdouts, sys.stdout, logs.filtered_stdout, self._filters[0]),
            (logs.tee_stderrs, sys.stderr, logs.filtered_stderr, self._filters[1]),
        ):
            files = {rank: path for rank, path in paths.items() if path != os.devnull}
            if not files:
                continue
            from holdfast.processes.tail import TailLog

            if console is not None:
                self._tails.append(TailLog(self.name, files, console, self._log_line_prefixes).start())
            if filters and filtered_log:
                try:
                    fd = open_append(filtered_log, FILTERED_LOG_MODE)
                except OSError as error:  # the workers run by now; one may have put a pipe there
                    notice(f"{self.name}: there is no {filtered_log!r}: {error.strerror}")
                    continue
                copy = open(fd, "w", encoding="utf-8")  # noqa: SIM115 - closed when the set has ended
                self._filtered_logs.append(copy)
                wanted = _containing_one_of(filters)
                self._tails.append(
                    TailLog(self.name, files, copy, self._log_line_prefixes, log_line_filter=wanted).start()
                )

    # Watching

    def pids(self) -> dict[int, int]:
        """The process ids by local rank."""
        return {} if self._keeper is None else dict(sorted(self._keeper.pids.items()))

    def running(self) -> list[int]:
        """The ranks of the processes that are not known to have ended."""
        keeper = self._keeper
        return [] if keeper is None or keeper.is_gone else sorted(keeper.pids.keys() - keeper.exits)

    def disturbed(self, ranks: Iterable[int], timestamp: float) -> None:
        """Mark processes that got a signal at this Unix time, and are about to be stopped. A later exit is not their
        failure: the signal may end a wait, and the program may continue after it.
        """
        for rank in ranks:
            self._disturbed.setdefault(rank, timestamp)

    @property
    def has_news(self) -> bool:
        """Whether `wait` has news that the descriptor no longer signals: a process that fails at once is known when the
        start returns.
        """
        return self._keeper is not None and self._result is None and self._is_over() and not self._is_stopping()

    def fileno(self) -> int:
        """A descriptor that is readable when `wait` may have news. Check `has_news` as well after the start."""
        if self._keeper is None or self._result is not None:
            raise ValueError(f"{self.name} is not running")
        return self._keeper.fileno()

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """Wait for the set to end: all exited with 0, or one failed and the others were stopped.

        Returns None if `timeout` seconds pass first, even while the others are being stopped. A negative timeout waits
        for ever, 0 only checks. `period` is ignored: the kernel notifies, so nothing is polled.
        """
        del period
        if self._result is None:
            if self._keeper is None:
                raise ValueError(f"{self.name} was not started")
            deadline = None if timeout < 0 else time.monotonic() + _check_seconds("timeout", timeout)
            self._wait_until(self._is_over, deadline)
            if self._is_over():
                if not self._is_stopping():
                    if self.before_stop is not None and (running := self.running()):
                        self.before_stop(running)
                    self._stop(signal.SIGTERM, self.shutdown_timeout)
                self._finish_when_gone(deadline)
        handlers.tidy()
        return self._result

    def first_failure(self) -> ProcessFailure | None:
        """The failure that ended the set, as soon as it is known; the others may still be stopping."""
        exits = {} if self._keeper is None else self._keeper.exits
        failed = [
            (exit_.timestamp, rank)
            for rank, exit_ in exits.items()
            if self._on_its_own(rank, exit_) and not self._has_succeeded(rank, exit_)
        ]
        if not failed:
            return None
        _, rank = min(failed)
        return self._failure(rank, exits[rank])

    def fence(self, at: float) -> None:
        """Let the set live until this monotonic time. Then its keeper kills it, unless a later fence was set, even if
        this process has died. Any thread may call it. If called before the start, it holds from the first moment.
        """
        self._fence_at = at
        if self._keeper is not None:
            self._keeper.fence(at)

    def output_bytes(self) -> dict[int, int]:
        """How many bytes each process is known to have written so far, by local rank. Output that goes straight to a
        console is not counted, such as stdout if stderr is a different console.
        """
        counts = {} if self._keeper is None else self._keeper.output_bytes()
        for rank in counts:
            for path in (self.logs.stdouts[rank], self.logs.stderrs[rank]):
                if path and path != os.devnull:
                    with suppress(OSError):  # not opened yet, or removed
                        counts[rank] += os.stat(path).st_size
        return counts

    @property
    def stuck(self) -> tuple[int, ...]:
        """The processes that SIGKILL did not end: stuck in the kernel, or owned by another user."""
        return () if self._keeper is None or self._keeper.stuck is None else self._keeper.stuck

    @property
    def is_fenced(self) -> bool:
        """Whether the set was killed because its fence was not renewed."""
        return self._keeper is not None and self._keeper.is_fenced

    def _is_over(self) -> bool:
        assert self._keeper is not None
        exits = self._keeper.exits
        if self._keeper.is_gone or len(exits) == self.nprocs:
            return True
        return not all(self._has_succeeded(rank, exit_) for rank, exit_ in exits.items())

    def _has_succeeded(self, rank: int, exit_: Exit) -> bool:
        """Whether a process finished its work. It may crash after that, during interpreter shutdown."""
        return exit_.code == 0 or self._is_late_crash(rank, exit_)

    def _is_late_crash(self, rank: int, exit_: Exit) -> bool:
        if self.strict_exit or exit_.code >= 0 or not exit_.on_its_own:
            return False
        if rank not in self._is_late:
            from holdfast.errors.diagnosis import CRASH_SIGNALS

            self._is_late[rank] = -exit_.code in CRASH_SIGNALS and self._ended_well(rank)
        return self._is_late[rank]

    def _wait_until(self, is_true: Callable[[], bool], deadline: float | None = None) -> None:
        assert self._keeper is not None
        with Uninterrupted(), SignalWakeUp() as signals:
            self._keeper.wait_until(is_true, deadline, signals)

    # Stopping

    def close(self, death_sig: signal.Signals | None = None, timeout: float | None = None) -> None:
        """End the set: send `death_sig` (SIGTERM) to all at once, and SIGKILL after `timeout` seconds to the rest.

        When it returns, no process of the set is alive or a zombie; processes that the kernel cannot end are named on
        stderr. If a signal interrupts it, call it again, with a shorter timeout; it then does not wait for a console
        that accepts no more lines. Closing again does nothing.
        """
        grace_s = self.shutdown_timeout if timeout is None else _check_seconds("timeout", timeout)
        if self._result is None and os.getpid() == self._owner_pid:  # a forked process has a copy, but no set
            try:
                self._stop(death_sig or signal.SIGTERM, grace_s)
                self._finish_when_gone(None)
            except SignalException:
                self._is_in_a_hurry = True
                raise

    def _is_stopping(self) -> bool:
        return self._stopped_at < float("inf")

    def _stop(self, death_sig: int, grace_s: float) -> None:
        if self._keeper is not None:
            self._stopped_at = min(self._stopped_at, time.time())
            self._keeper.stop(death_sig, grace_s)

    def _finish_when_gone(self, deadline: float | None) -> None:
        keeper = self._keeper
        if keeper is not None:
            self._wait_until(lambda: keeper.is_gone or keeper.stuck is not None, deadline)
            if not keeper.is_gone and keeper.stuck is None:
                return
        with self._finishing:
            if self._result is None:  # another thread may have closed it meanwhile
                self._finish()

    def _finish(self) -> None:
        deadline = time.monotonic() + self._console_patience_s()
        for tail in self._tails:
            tail.stop(max(0.0, deadline - time.monotonic()))
        with Uninterrupted():
            try:
                for log in self._filtered_logs:
                    with suppress(OSError):  # a full disk; the workers' own logs are not affected
                        log.close()
                result = self._collect()
            finally:
                if self._keeper is not None:
                    self._keeper.close()
                if self._oom_watch is not None:
                    self._oom_watch.close()
                self._release()
                handlers.uninstall()
            self._result = result
        if self._keeper is not None and self._keeper.stuck is not None:
            pids = ", ".join(map(str, self._keeper.stuck)) or "some processes"
            notice(f"{self.name}: SIGKILL has not ended {pids}: stuck in the kernel, or of another user")

    def _console_patience_s(self) -> float:
        if self._is_in_a_hurry:
            return 0.0
        exits = {} if self._keeper is None else self._keeper.exits
        if len(exits) == self.nprocs and all(self._has_succeeded(rank, exit_) for rank, exit_ in exits.items()):
            return float("inf")
        return CATCH_UP_MAX_S

    def _collect(self) -> RunProcsResult:
        result = RunProcsResult(stdouts=self.logs.stdouts, stderrs=self.logs.stderrs)
        for rank, exit_ in sorted(self._keeper.exits.items()) if self._keeper else ():
            if self._is_late_crash(rank, exit_):
                result.late_crashes[rank] = self._failure(rank, exit_)
            if self._on_its_own(rank, exit_) and self._has_succeeded(rank, exit_):
                try:
                    result.return_values[rank] = self._return_value(rank)
                except Exception as error:  # noqa: BLE001 - unpickling a value runs the user's code
                    result.failures[rank] = self._failure(rank, exit_)
                    result.failures[rank].message = f"the value that it returned cannot be read: {error!r}"
            elif exit_.code != 0 and (self._on_its_own(rank, exit_) or self._had_failed(rank, exit_)):
                result.failures[rank] = self._failure(rank, exit_)
            else:
                result.terminated[rank] = exit_.code
        if len(result.return_values) < self.nprocs:
            result.return_values = {}
        return result

    def _had_failed(self, rank: int, exit_: Exit) -> bool:
        """Whether a stopped process had recorded its failure before the stop: a slow exit does not excuse it."""
        from holdfast.errors.error_file import thread_in

        failure = self._failure(rank, exit_)
        if not self._has_spoken(rank, failure) or thread_in(failure.error_file_data):
            return False  # the main thread may run for hours after another thread failed
        return failure.timestamp <= self._disturbed.get(rank, self._stopped_at)

    def _on_its_own(self, rank: int, exit_: Exit) -> bool:
        return exit_.on_its_own and rank not in self._disturbed

    def _failure(self, rank: int, exit_: Exit) -> ProcessFailure:
        from holdfast.errors import Category, ProcessFailure
        from holdfast.errors.error_file import thread_in

        assert self._keeper is not None
        failure = ProcessFailure(
            local_rank=rank,
            pid=self._keeper.pids[rank],
            exitcode=exit_.code,
            error_file=self.logs.error_files[rank],
            evidence=self._evidence(rank, exit_),
        )
        failure.ran_s = exit_.monotonic - self._keeper.started_at
        if thread_in(failure.error_file_data):
            failure.timestamp = exit_.timestamp
        if not self._has_spoken(rank, failure):
            failure.timestamp = exit_.timestamp
            if self._keeper.keeper_died:
                failure.message = (
                    f"killed with its keeper, PID {self._keeper.keeper_pid}, which was killed from outside"
                )
                failure.category = Category.INFRASTRUCTURE
        return failure

    def _has_spoken(self, rank: int, failure: ProcessFailure) -> bool:
        """Whether the process recorded its failure: in its error file, or in the spare file if the disk was full."""
        from holdfast.errors.error_file import spare_path

        spare = spare_path(self.envs[rank])
        return failure.has_error_file() or (spare != "" and os.path.exists(spare))

    def _evidence(self, rank: int, exit_: Exit) -> Evidence:
        """The evidence about a failed process, beside its error file."""
        from holdfast.errors.diagnosis import Evidence
        from holdfast.errors.error_file import spare_path
        from holdfast.processes.postmortem import crash_stacks, end_of

        assert self._keeper is not None
        log_file = self.logs.stderrs[rank]
        if log_file == os.devnull:
            log_file = ""
        out_of_memory = ""
        if exit_.code == -signal.SIGKILL and exit_.on_its_own and not self._keeper.keeper_died and self._oom_watch:
            out_of_memory = self._oom_watch.verdict(self._keeper.pids[rank])
        return Evidence(
            stderr=end_of(log_file) if log_file else self._keeper.heard.get(rank, ""),
            stacks=crash_stacks(self.envs[rank]),
            max_rss_kib=exit_.max_rss_kib,
            out_of_memory=out_of_memory,
            log_file=log_file,
            spare_file=spare_path(self.envs[rank]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_ranks(name: str, **mappings: Mapping[int, Any]) -> None:
    """Check that each mapping has exactly the ranks 0 to N-1; the error names the mapping and the rank."""
    nprocs = max(map(len, mappings.values()))
    problem = "" if nprocs else f"{' and '.join(mappings)} are empty; there is no process to start"
    for what, mapping in mappings.items():
        for rank in range(nprocs):
            if not problem and rank not in mapping:
                others = ", ".join(map(str, mapping)) or "none"
                problem = (
                    f"{what} has no rank {rank}; {nprocs} processes need the ranks 0 to {nprocs - 1}, it has {others}"
                )
    if problem:
        from holdfast.errors.tree import InputError

        class RanksError(InputError, RuntimeError):
            """Also a RuntimeError, as callers of torch's function expect."""

        raise RanksError(f"{name}: {problem}")


def check_text(what: str, text: object) -> str:
    """`text`, if it can be passed to a program."""
    if not isinstance(text, str):
        raise _input_error(f"{what}: {text!r} is not a str")
    if "\0" in text:
        raise _input_error(f"{what}: {text!r} holds a zero byte, which no program can be given")
    return text


def _check_seconds(what: str, seconds: float) -> float:
    if not seconds >= 0:  # also rejects NaN
        raise _input_error(f"{what}={seconds!r}: it takes a number of seconds, 0 or more")
    return seconds


def _input_error(message: str) -> Exception:
    from holdfast.errors.tree import InputError

    return InputError(message)


def _containing_one_of(texts: list[str]) -> Callable[[str], bool]:
    return lambda line: any(text in line for text in texts)
