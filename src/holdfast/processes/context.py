"""A set of processes from start to end, as seen by the program that started it."""

from __future__ import annotations

import _thread
import os
import signal
import time
from contextlib import suppress

from holdfast.errors.notice import notice
from holdfast.processes.arguments import check_ranks, check_seconds
from holdfast.processes.interruption import SignalException, SignalWakeUp, Uninterrupted, handlers
from holdfast.processes.keeper_client import KeeperClient, NoTemplateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

    from holdfast.errors import ProcessFailure
    from holdfast.processes.keeper_client import KeeperSource
    from holdfast.processes.launch import LastWill, Launch
    from holdfast.processes.logs import LogsSpecs
    from holdfast.processes.outcome import Outcome
    from holdfast.processes.result import RunProcsResult
    from holdfast.processes.teed_logs import TeedLogs

CATCH_UP_MAX_S = 10.0
"""How long a set that failed or was stopped waits for a slow console to show its last lines. A set that ended well
waits as long as the console accepts any.
"""

SHUTDOWN_TIMEOUT_S = 30
"""The default time between the stop signal and SIGKILL."""


def remark_on_numa(name: str, numa_options: object) -> None:
    """Say that `numa_options` have no effect, if there are any."""
    if numa_options is not None:
        notice(f"{name}: workers are not bound to NUMA nodes; holdfast does not do that yet")


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
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        check_ranks(name, args=args, envs=envs)
        self.name = name
        self.entrypoint = entrypoint
        self.args = args
        self.nprocs = len(args)
        self.shutdown_timeout = check_seconds("shutdown_timeout", shutdown_timeout)
        self.envs = {rank: dict(env) for rank, env in envs.items()}
        self.logs = logs_specs.reify(self.envs)
        self._log_line_prefixes = log_line_prefixes
        self._filters = (duplicate_stdout_filters, duplicate_stderr_filters)
        self._teed_logs: TeedLogs | None = None
        self._is_in_a_hurry = False
        self._keeper: KeeperClient | None = None
        self.template: KeeperSource | None = None
        """The template to fork the processes from. Set it before the start; it is used if it is ready then."""
        self.before_stop: Callable[[list[int]], None] | None = None
        """Called when a process has failed, just before the others are stopped, with the ranks that still run."""
        self.will: LastWill | None = None
        """The command to run when this process has died and no process of the set is left. Set it before the start."""
        self.strict_exit = False
        """Whether a crash after a good end of the program counts as a failure."""
        self._is_warm = False
        self._outcome: Outcome | None = None
        """The judgement on the set; None if it has no keeper."""
        self._fence_at: float | None = None
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

    # Starting

    def start(self) -> None:
        """Start all processes, or none: if one cannot start, its error is raised, such as FileNotFoundError."""
        if self._keeper is not None or self._result is not None:
            raise ValueError(f"{self.name} was already started; make another context to start it again")
        handlers.install()
        try:
            self._start()
        except BaseException as error:
            # The caller will never see the set. Another signal ends its grace period.
            try:
                self.close(error.sigval if isinstance(error, SignalException) else signal.SIGTERM)
            except SignalException:
                with Uninterrupted():
                    self.close(timeout=0)
                raise
            raise

    def _start(self) -> None:
        self._is_warm = self.template is not None and self.template.is_ready()
        with Uninterrupted():
            said = self._fence_at
            self._keeper = keeper = self._keep()
            from holdfast.processes.outcome import Outcome

            self._outcome = outcome = Outcome(
                keeper, self.envs, self.logs, self._ended_well, strict_exit=self.strict_exit
            )
            keeper.guard_fence()  # only now: if it cannot, the set has an owner who ends it
            # A fence that was set meanwhile found no keeper. Loop, as another one may be set now.
            while said != self._fence_at:
                said = self._fence_at
                assert said is not None
                keeper.fence(said)
        _wait(keeper, lambda: keeper.is_started)
        if keeper.error is not None:
            raise keeper.error
        from holdfast.processes.oom import OomWatch

        with Uninterrupted():
            outcome.oom_watch = OomWatch(keeper.pids.values())
        if any(path != os.devnull for path in (*self.logs.tee_stdouts.values(), *self.logs.tee_stderrs.values())):
            from holdfast.processes.teed_logs import TeedLogs

            self._teed_logs = TeedLogs(self.name, self._log_line_prefixes)
            self._teed_logs.start(self.logs, self._filters)

    def _keep(self) -> KeeperClient:
        if self._is_warm:
            try:
                return KeeperClient(self._launches(), self._fence_at, self.template, self.will)
            except NoTemplateError:
                self._is_warm = False
                self._release()
        return KeeperClient(self._launches(), self._fence_at, will=self.will)

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
        if self._outcome is not None:
            self._outcome.disturbed(ranks, timestamp)

    @property
    def has_news(self) -> bool:
        """Whether `wait` has news that the descriptor no longer signals: a process that fails at once is known when the
        start returns.
        """
        outcome = self._outcome
        return outcome is not None and self._result is None and outcome.is_over() and not outcome.is_stopping

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
            if self._keeper is None or self._outcome is None:
                raise ValueError(f"{self.name} was not started")
            deadline = None if timeout < 0 else time.monotonic() + check_seconds("timeout", timeout)
            _wait(self._keeper, self._outcome.is_over, deadline)
            if self._outcome.is_over():
                if not self._outcome.is_stopping:
                    if self.before_stop is not None and (running := self.running()):
                        self.before_stop(running)
                    self._stop(signal.SIGTERM, self.shutdown_timeout)
                self._finish_when_gone(deadline)
        handlers.tidy()
        return self._result

    def first_failure(self) -> ProcessFailure | None:
        """The failure that ended the set, as soon as it is known; the others may still be stopping."""
        return None if self._outcome is None else self._outcome.first_failure()

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

    # Stopping

    def close(self, death_sig: signal.Signals | None = None, timeout: float | None = None) -> None:
        """End the set: send `death_sig` (SIGTERM) to all at once, and SIGKILL after `timeout` seconds to the rest.

        When it returns, no process of the set is alive or a zombie; processes that the kernel cannot end are named on
        stderr. If a signal interrupts it, call it again, with a shorter timeout; it then does not wait for a console
        that accepts no more lines. Closing again does nothing.
        """
        grace_s = self.shutdown_timeout if timeout is None else check_seconds("timeout", timeout)
        if self._result is None and os.getpid() == self._owner_pid:  # a forked process has a copy, but no set
            try:
                self._stop(death_sig or signal.SIGTERM, grace_s)
                self._finish_when_gone(None)
            except SignalException:
                self._is_in_a_hurry = True
                raise

    def _stop(self, death_sig: int, grace_s: float) -> None:
        if self._keeper is not None and self._outcome is not None:
            self._outcome.stopped_at = min(self._outcome.stopped_at, time.time())
            self._keeper.stop(death_sig, grace_s)

    def _finish_when_gone(self, deadline: float | None) -> None:
        keeper = self._keeper
        if keeper is not None:
            _wait(keeper, lambda: keeper.is_gone or keeper.stuck is not None, deadline)
            if not keeper.is_gone and keeper.stuck is None:
                return
        with self._finishing:
            if self._result is None:  # another thread may have closed it meanwhile
                self._finish()

    def _finish(self) -> None:
        outcome = self._outcome
        if self._teed_logs is not None:
            is_success = outcome is not None and outcome.is_success()
            patience_s = float("inf") if is_success else CATCH_UP_MAX_S
            self._teed_logs.stop(0.0 if self._is_in_a_hurry else patience_s)
        with Uninterrupted():
            try:
                if self._teed_logs is not None:
                    self._teed_logs.close()
                if outcome is None:
                    from holdfast.processes.result import RunProcsResult

                    result = RunProcsResult(stdouts=self.logs.stdouts, stderrs=self.logs.stderrs)
                else:
                    result = outcome.collect(self._return_value)
            finally:
                if self._keeper is not None:
                    self._keeper.close()
                if outcome is not None:
                    outcome.close()
                self._release()
                handlers.uninstall()
            self._result = result
        if self._keeper is not None and self._keeper.stuck is not None:
            pids = ", ".join(map(str, self._keeper.stuck)) or "some processes"
            notice(f"{self.name}: SIGKILL did not end {pids}: stuck in the kernel, or owned by another user")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _wait(keeper: KeeperClient, is_true: Callable[[], bool], deadline: float | None = None) -> None:
    with Uninterrupted(), SignalWakeUp() as signals:
        keeper.wait_until(is_true, deadline, signals)
