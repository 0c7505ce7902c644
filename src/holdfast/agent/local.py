"""The agent of one machine: workers are its processes, and one wait covers everything that can happen to them."""

from __future__ import annotations

import os
import signal
import time

from holdfast.agent.core_model import HangFound, Phase, SetFailed, WorkerExited
from holdfast.agent.environment import (
    TORCHELASTIC_HEALTH_CHECK_PORT,
    line_prefixes,
    worker_arguments,
    worker_environment,
)
from holdfast.agent.group import RunResult
from holdfast.agent.inspection import Inspection
from holdfast.agent.own_run import OwnRun
from holdfast.agent.shared_memory import WorkerPages
from holdfast.agent.simple import SimpleElasticAgent
from holdfast.agent.state import WorkerState
from holdfast.agent.survivors import Survivors
from holdfast.agent.timers import Timers
from holdfast.agent.uninterruptible import UninterruptibleWatch, refuse_beside, timeout_from_environment
from holdfast.agent.wait import Wait
from holdfast.metrics import prof
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import Deferred, SignalException, Uninterrupted, handlers
from holdfast.processes.starting import start_processes
from holdfast.settings import EXIT_BARRIER_TIMEOUT_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from holdfast.agent.core_model import Event
    from holdfast.agent.findings import Investigation
    from holdfast.agent.group import WorkerGroup, WorkerSpec
    from holdfast.agent.health import HealthCheckServer
    from holdfast.errors import ProcessFailure
    from holdfast.processes import LogsSpecs, PContext, RunProcsResult
    from holdfast.rendezvous.restarts import Fault
    from holdfast.torchstore import TorchStoreServer
    from holdfast.warm.template import Template

PREFIX_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
PAGE = "HOLDFAST_WORKER_PAGE"


class LocalElasticAgent(SimpleElasticAgent):
    """Runs functions or commands as processes of this machine.

    `stop_grace`, `hang_timeout` and `warm` are those of the job's settings, unless they are given here. Waits are for
    notifications by the kernel: an exit, a signal, a timer's request, or the nearest deadline.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        start_method: str = "spawn",
        exit_barrier_timeout: float = EXIT_BARRIER_TIMEOUT_S,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
        health_check_server: HealthCheckServer | None = None,
        uninterruptible_state_timeout: float | None = None,
        stop_grace: float | None = None,
        hang_timeout: float | None = None,
        warm: bool | Sequence[str] | None = None,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        stuck_s = timeout_from_environment() if uninterruptible_state_timeout is None else uninterruptible_state_timeout
        self._stuck_watch = UninterruptibleWatch(stuck_s) if stuck_s > 0 else None
        self._logs_specs = logs_specs
        self._start_method = start_method
        self._prefix_template = log_line_prefix_template or os.environ.get(PREFIX_TEMPLATE)
        self._health_check_server = health_check_server
        self._pcontext: PContext | None = None
        run_id = self._worker_group.spec.rdzv_handler.get_run_id
        self._timers = Timers(run_id, self._event_writer.watchdog)
        self._seen: RunProcsResult | None = None
        settings = self._settings
        self._stop_grace_s = settings.stop_grace if stop_grace is None else stop_grace
        self._pages = WorkerPages()
        hang_timeout_s = settings.hang_timeout if hang_timeout is None else hang_timeout
        self._inspection = Inspection(self._worker_group, self._run_events, hang_timeout_s, self._timers.read)
        self._run = OwnRun(self._run_events, self._inspection)
        self._survivors = Survivors(self._worker_group, self._run_events)
        self._investigation: Investigation | None = None
        self._hang_node: int | None = None
        warm = settings.warm if warm is None else warm
        self._template: Template | None = None
        if warm:
            from holdfast.agent.warm_start import template_for

            self._template = template_for(spec, start_method, warm)
        self._told_late_crashes: set[int] = set()

    def run(self, role: str = "default") -> RunResult:
        handlers.install()
        try:
            self._setup_healthcheck()
            if self._template is not None:
                self._template.start()  # its imports take as long as the rendezvous, or longer
            result = super().run(role)
            if self._investigation is not None:
                self._investigation.show_survivors(result)
            return result
        finally:
            if self._health_check_server is not None:
                self._health_check_server.stop()
            self._pages.close()
            self._inspection.close()
            if self._template is not None:
                self._template.close()
            handlers.uninstall()

    # Starting

    @prof
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        envs = {
            worker.local_rank: worker_environment(worker_group, worker, self._restart_count())
            for worker in worker_group.workers
        }
        pages = self._pages.open(envs)
        for rank, path in pages.items():
            envs[rank][PAGE] = path
        self._timers.begin(envs)
        assert spec.entrypoint is not None
        try:
            self._pcontext = start_processes(
                name=spec.role,
                entrypoint=spec.entrypoint,
                args={rank: worker_arguments(spec, rank) for rank in envs},
                envs=envs,
                logs_specs=self._logs_specs,
                log_line_prefixes=line_prefixes(self._prefix_template, envs),
                start_method=self._start_method,
                numa_options=spec.numa_options,
                duplicate_stdout_filters=spec.duplicate_stdout_filters,
                duplicate_stderr_filters=spec.duplicate_stderr_filters,
                shutdown_timeout=self._shutdown_timeout,
                before_start=self._before_start,
            )
        except OSError as error:
            if not isinstance(spec.entrypoint, str):
                raise
            import errno

            from holdfast.errors.tree import InputError

            hint = "; it is not a program, or has no #! line" if error.errno == errno.ENOEXEC else ""
            raise InputError(f"cannot start {error.filename or spec.entrypoint!r}: {error.strerror}{hint}") from error
        from holdfast.agent.findings import Investigation

        self._hang_node = None
        run = self._run.begin(self._logs_specs)
        self._inspection.begin(self._pcontext, pages, run)
        self._survivors.begin(self._pcontext, pages, run)
        self._investigation = Investigation(worker_group, self._timers, self._survivors, self._inspection)
        return dict(self._pcontext.pids())

    def _starting(self) -> Deferred:
        """Signals wait: the first workers may listen already, and are asked to stop only by an agent that knows all."""
        return Deferred()

    def _before_start(self, context: PContext) -> None:
        context.template = self._template
        context.before_stop = self._survivors.before_stop
        context.will = self._worker_group.spec.rdzv_handler.last_will()
        context.strict_exit = self._worker_group.spec.strict_exit
        self._worker_group.spec.rdzv_handler.on_lease(context.fence)

    def _look_before_stop(self, reason: str) -> None:
        if self._pcontext is not None and not self._inspection.has_seen_hang:
            self._survivors.take(self._pcontext.running(), reason)

    def _event_log_path(self) -> str | None:
        run = self._run.directory
        return None if run is None else run.events

    # Watching

    def _wait_for_change(self, worker_group: WorkerGroup) -> None:
        assert self._pcontext is not None
        handler = worker_group.spec.rdzv_handler
        wait = Wait()
        for source in (self._pcontext, _unserved_store(worker_group), handler.fileno()):
            wait.add(source)
        self._timers.register(wait.poll)
        wait.at_most(0.0 if self._pcontext.has_news else None)
        wait.at_most(self._timers.wait_s())
        wait.until(self._state.until)
        wait.at_most(worker_group.spec.monitor_interval if handler.needs_polling else None)
        wait.at_most(None if self._stuck_watch is None else self._stuck_watch.interval_s)
        if self._state.phase is Phase.RUNNING:  # workers that are being stopped are not inspected
            self._inspection.register(wait.poll)
            wait.at_most(self._inspection.wait_s())
        wait.run()

    def _serve_store(self, worker_group: WorkerGroup) -> None:
        """Start the store only when a client connects: most of its imports then run while workers import torch."""

    @prof
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        assert self._pcontext is not None
        store = _unserved_store(worker_group)
        if store is not None and store.has_clients():
            with Uninterrupted():
                store.start()
        self._timers.look(self._survivors.take_overdue)
        ended = self._seen = self._pcontext.wait(0)
        if ended is None:
            return RunResult(WorkerState.HEALTHY)
        if self._pcontext.is_fenced and not ended.is_failed():
            return RunResult(WorkerState.STOPPED)
        return self._result_of(worker_group, ended)

    def _look(self, worker_group: WorkerGroup) -> Event | None:
        news = super()._look(worker_group)
        if news is not None or self._state.phase is not Phase.RUNNING:
            return news
        return self._look_closer(worker_group)

    def _news_of_the_round(self) -> Event | None:
        """A failure here comes first: a round that has ended meanwhile may have ended because of it."""
        is_running = self._state.phase is Phase.RUNNING
        return (self._first_failure(self._worker_group) if is_running else None) or super()._news_of_the_round()

    def _first_failure(self, worker_group: WorkerGroup) -> Event | None:
        """A worker has failed, and the keeper stops the others. Other nodes need not wait until they are gone."""
        assert self._pcontext is not None
        assert self._investigation is not None
        failure = self._pcontext.first_failure()
        if failure is None:
            return None
        self._run.check()
        failures = self._investigation.explained({failure.local_rank: failure})
        if worker_group.spec.rdzv_handler.counts_restarts:
            failures = self._investigation.accused(failures)
        self._result = RunResult(WorkerState.UNHEALTHY, failures=failures)
        return WorkerExited()

    def _look_closer(self, worker_group: WorkerGroup) -> Event | None:
        """Check whether workers hang, or are stuck in the kernel."""
        assert self._pcontext is not None
        hang = self._inspection.look()
        if hang is None:
            if self._stuck_watch is not None and self._stuck_watch.has_found(self._pcontext.pids().values()):
                return SetFailed(*_judged(self._result, worker_group), is_stuck=True)
            # The inspection may have read the end of the round. Nothing else wakes this agent up for it.
            return self._news_of_the_round()
        # Collecting the stacks took a while. An end that happened meanwhile takes precedence over the hang.
        news = super()._look(worker_group)
        if news is not None:
            self._inspection.withdraw()
            return news
        self._hang_node = hang.node_rank
        result = self._result = RunResult(WorkerState.FAILED, failures={hang.rank: hang.failure})
        return HangFound(*_judged(result, worker_group))

    def _result_of(self, worker_group: WorkerGroup, ended: RunProcsResult) -> RunResult:
        """The result of a set that ended, by global rank."""
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        if ended.late_crashes:
            from holdfast.agent.late_crashes import warn_of

            crashes = {ranks[local_rank]: crash for local_rank, crash in ended.late_crashes.items()}
            warn_of(crashes, self._told_late_crashes, self._run_events)
        if not ended.is_failed():
            return RunResult(
                WorkerState.SUCCEEDED,
                return_values={ranks[local_rank]: value for local_rank, value in ended.return_values.items()},
            )
        assert self._investigation is not None
        self._run.check()
        return RunResult(
            WorkerState.FAILED,
            failures=self._investigation.accused(self._investigation.explained(ended.failures)),
            terminated={ranks[local_rank]: code for local_rank, code in ended.terminated.items()},
        )

    def _report(self, failures: Mapping[int, ProcessFailure]) -> None:
        super()._report(failures)
        self._inspection.timeout_told()

    def _failures_at_the_end(self, worker_group: WorkerGroup) -> dict[int, ProcessFailure]:
        ended = None if self._pcontext is None else self._pcontext.wait(0)
        if ended is None or ended is self._seen:
            return {}
        return self._result_of(worker_group, ended).failures

    def _node_of_failure(self) -> int | None:
        return self._hang_node

    def _before_exit_barrier(self) -> None:
        group = self._worker_group
        self._inspection.workers_ended()
        group.spec.rdzv_handler.do_meanwhile(self._inspection)
        store = _unserved_store(group)
        if store is not None and (group.group_world_size or 1) > 1:
            with Uninterrupted():  # nobody looks for clients any more, and workers of other nodes may still come
                store.start()

    def _take_no_requests(self) -> None:
        self._inspection.close()

    # Stopping

    def _ask_to_stop(self, worker_group: WorkerGroup, reason: str) -> float | None:
        del worker_group
        grace_s = self._stop_grace_s
        running = [] if self._pcontext is None else self._pcontext.running()
        if grace_s <= 0 or not self._pages.ask_to_stop(reason, grace_s, running):
            return None
        return time.monotonic() + grace_s

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        del worker_group
        self._end_attempt(signal.SIGTERM, self._shutdown_timeout)
        refuse_beside(() if self._pcontext is None else self._pcontext.stuck)
        if self._worker_group.spec.rdzv_handler.counts_restarts:
            self._survivors.keep()  # the next start may be far off; a single node starts again at once

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        try:
            self._end_attempt(death_sig, timeout)
        except SignalException as received:
            # Not even a signal may leave from here before the workers are gone: this node gives back its lease then.
            if not self._is_interrupted:
                self._is_interrupted = True
                self._end_attempt(received.sigval, timeout)
            raise
        finally:
            self._timers.close()
            # A node that leaves gives back its lease, and the other nodes go on.
            if self._is_interrupted and self._worker_group.spec.rdzv_handler.counts_restarts:
                refuse_beside(() if self._pcontext is None else self._pcontext.stuck)
        self._survivors.keep()

    def _end_attempt(self, death_sig: signal.Signals, timeout: float) -> None:
        try:
            if self._pcontext is not None:
                self._pcontext.close(death_sig, timeout)
        except SignalException:
            if self._is_interrupted:
                # A second signal means: stop now. A third signal cannot make this faster, and must not let this node
                # leave before the workers are gone.
                assert self._pcontext is not None
                with Uninterrupted():
                    self._pcontext.close(timeout=0)
            raise
        finally:
            # After the workers have ended: a worker that leaves a timed section while it exits looks for the pipe.
            self._timers.attempt_ended()

    # Health

    def _setup_healthcheck(self) -> None:
        """Start the health check. It runs from before the rendezvous until after the exit barrier."""
        text = os.environ.get(TORCHELASTIC_HEALTH_CHECK_PORT)
        if self._health_check_server is not None:
            self._health_check_server.start()
        elif text is not None:
            from holdfast.agent.health import open_health_check

            self._health_check_server = open_health_check(text, self._timers.last_progress)


def _judged(result: RunResult, worker_group: WorkerGroup) -> tuple[Fault, str]:
    from holdfast.agent.verdicts import fault_of, outline

    return fault_of(result, worker_group.workers[0]), outline(result)


def _unserved_store(worker_group: WorkerGroup) -> TorchStoreServer | None:
    store = None if worker_group.hosting is None else worker_group.hosting.store
    return None if store is None or store.is_started else store
