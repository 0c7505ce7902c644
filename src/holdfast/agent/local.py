"""The agent of one machine: workers are its processes, and one wait covers everything that can happen to them."""

from __future__ import annotations

import os
import select
import signal
import time

from holdfast.agent.core_model import HangFound, Phase, SetFailed, WorkerExited
from holdfast.agent.environment import HEALTH_CHECK_PORT, line_prefixes, worker_arguments, worker_environment
from holdfast.agent.group import RunResult
from holdfast.agent.inspection import Inspection
from holdfast.agent.shared_memory import WorkerPages
from holdfast.agent.simple import SimpleElasticAgent
from holdfast.agent.state import WorkerState
from holdfast.agent.survivors import Survivors
from holdfast.agent.timers import Timers
from holdfast.agent.uninterruptible import UninterruptibleWatch, timeout_from_environment
from holdfast.logger import get_logger
from holdfast.metrics import prof
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import SignalException, SignalWakeUp, Uninterrupted, handlers
from holdfast.processes.starting import start_processes
from holdfast.run_directory import RunDirectory
from holdfast.settings import EXIT_BARRIER_TIMEOUT_S
from holdfast.waiting import poll_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from holdfast.agent.core_model import Event
    from holdfast.agent.group import WorkerGroup, WorkerSpec
    from holdfast.agent.health import HealthCheckServer
    from holdfast.errors import ProcessFailure
    from holdfast.processes import LogsSpecs, PContext, RunProcsResult
    from holdfast.rendezvous.restarts import Fault
    from holdfast.torchstore import TorchStoreServer
    from holdfast.warm.template import Template

PREFIX_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
PAGE = "HOLDFAST_WORKER_PAGE"

log = get_logger(__name__)


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
        self._has_asked_others = False
        self._seen: RunProcsResult | None = None
        settings = self._settings
        self._stop_grace_s = settings.stop_grace if stop_grace is None else stop_grace
        self._pages = WorkerPages()
        hang_timeout_s = settings.hang_timeout if hang_timeout is None else hang_timeout
        self._inspection = Inspection(self._worker_group, self._run_events, hang_timeout_s)
        self._survivors = Survivors(self._worker_group, self._run_events)
        self._hang_node: int | None = None
        warm = settings.warm if warm is None else warm
        self._template: Template | None = None
        if warm:
            from holdfast.agent.warm_start import template_for

            self._template = template_for(spec, start_method, warm)
        self._registered = ""
        self._told_late_crashes: set[int] = set()

    def run(self, role: str = "default") -> RunResult:
        handlers.install()
        try:
            self._setup_healthcheck()
            if self._template is not None:
                self._template.start()  # its imports take as long as the rendezvous, or longer
            result = super().run(role)
            self._show_survivors(result)
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
        self._has_asked_others = False
        self._hang_node = None
        run = self._run_directory()
        self._inspection.begin(self._pcontext, pages, run)
        self._survivors.begin(self._pcontext.pids(), pages, run)
        place = os.devnull if run is None else run.path
        if place != self._registered:
            from holdfast.events.run_index import register

            self._registered = place
            register(place)
        return dict(self._pcontext.pids())

    def _before_start(self, context: PContext) -> None:
        context.template = self._template
        context.before_stop = self._before_stop
        context.will = self._worker_group.spec.rdzv_handler.last_will()
        context.strict_exit = self._worker_group.spec.strict_exit
        self._worker_group.spec.rdzv_handler.on_lease(context.fence)

    def _before_stop(self, running: list[int]) -> None:
        self._ask_where(running, "a worker failed, so the others were stopped")

    def _look_before_stop(self, reason: str) -> None:
        if self._pcontext is not None and not self._inspection.has_seen_hang:
            self._ask_where(self._pcontext.running(), reason)

    def _ask_where(self, running: list[int], reason: str) -> None:
        assert self._pcontext is not None
        now = time.time()
        self._pcontext.disturbed(self._survivors.take(running, reason), now)

    def _show_survivors(self, result: RunResult) -> None:
        """Add to the root cause where the other workers were. Only on a single node.

        Several nodes show the same text, and none knows where the others' workers were. For them, the report has it.
        """
        if not result.is_failed() or not result.failures or (self._worker_group.group_world_size or 1) > 1:
            return
        from holdfast.errors.failure import in_order

        in_order(result.failures)[0][1].survivors = tuple(self._survivors.where())

    def _event_log_path(self) -> str | None:
        run = self._run_directory()
        return None if run is None else run.events

    def _run_directory(self) -> RunDirectory | None:
        """The run's directory, from the first attempt on; None if the logs go elsewhere."""
        path = getattr(self._logs_specs, "run_dir", None)
        return RunDirectory(path) if path else None

    # Watching

    def _wait_for_change(self, worker_group: WorkerGroup) -> None:
        assert self._pcontext is not None
        poll = select.poll()
        poll.register(self._pcontext, select.POLLIN)
        self._timers.register(poll)
        for source in (self._unserved_store(worker_group), worker_group.spec.rdzv_handler.fileno()):
            if source is not None:
                poll.register(source, select.POLLIN)
        if self._state.phase is Phase.RUNNING:  # workers that are being stopped are not inspected
            self._inspection.register(poll)
        waits_s = self._waits_s(worker_group.spec)
        with Uninterrupted(), SignalWakeUp() as signals:
            if signals.fd is not None:
                poll.register(signals.fd, select.POLLIN)
            handlers.raise_pending(sections=1)
            poll.poll(poll_ms(min(waits_s, default=None)))

    def _waits_s(self, spec: WorkerSpec) -> list[float]:
        """The times until events that no descriptor reports."""
        assert self._pcontext is not None
        look_in_s = self._inspection.wait_s() if self._state.phase is Phase.RUNNING else None
        until = self._state.until
        waits_s = (
            0.0 if self._pcontext.has_news else None,
            self._timers.wait_s(),
            None if until is None else max(0.0, until - time.monotonic()),
            spec.monitor_interval if spec.rdzv_handler.needs_polling else None,
            None if self._stuck_watch is None else self._stuck_watch.interval_s,
            look_in_s,
        )
        return [wait_s for wait_s in waits_s if wait_s is not None]

    def _serve_store(self, worker_group: WorkerGroup) -> None:
        """Start the store only when a client connects: most of its imports then run while workers import torch."""

    def _unserved_store(self, worker_group: WorkerGroup) -> TorchStoreServer | None:
        store = None if worker_group.hosting is None else worker_group.hosting.store
        return None if store is None or store.is_started else store

    @prof
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        assert self._pcontext is not None
        store = self._unserved_store(worker_group)
        if store is not None and store.has_clients():
            store.start()
        self._timers.look(self._ask_overdue)
        ended = self._seen = self._pcontext.wait(0)
        if ended is None:
            return RunResult(WorkerState.HEALTHY)
        if self._pcontext.is_fenced and not ended.is_failed():
            return RunResult(WorkerState.STOPPED)
        return self._result_of(worker_group, ended)

    def _ask_overdue(self, pids: list[int]) -> None:
        assert self._pcontext is not None
        local_ranks = [rank for rank, pid in self._pcontext.pids().items() if pid in pids]
        self._survivors.take_overdue(local_ranks, "a timer expired")

    def _look(self, worker_group: WorkerGroup) -> Event | None:
        news = super()._look(worker_group)
        if news is not None or self._state.phase is not Phase.RUNNING:
            return news
        return self._first_failure(worker_group) or self._look_closer(worker_group)

    def _first_failure(self, worker_group: WorkerGroup) -> Event | None:
        """A worker has failed, and the keeper stops the others. Other nodes need not wait until they are gone."""
        assert self._pcontext is not None
        failure = self._pcontext.first_failure()
        if failure is None:
            return None
        self._explain(failure)
        failures = {worker_group.workers[failure.local_rank].global_rank: failure}
        if worker_group.spec.rdzv_handler.counts_restarts:
            self._ask_others_after_timeout(failures)
            self._survivors.accuse(failures)
        self._result = RunResult(WorkerState.UNHEALTHY, failures=failures)
        return WorkerExited()

    def _look_closer(self, worker_group: WorkerGroup) -> Event | None:
        """Check whether workers hang, or are stuck in the kernel."""
        assert self._pcontext is not None
        hang = self._inspection.look()
        if hang is None:
            if self._is_stuck():
                return SetFailed(*_judged(self._result, worker_group), is_stuck=True)
            # The inspection may have read the end of the round. Nothing else wakes this agent up for it.
            return self._news_of_the_round()
        # Collecting the stacks took a while. An end that happened meanwhile takes precedence over the hang.
        news = super()._look(worker_group) or self._first_failure(worker_group)
        if news is not None:
            self._inspection.withdraw()
            return news
        self._hang_node = hang.node_rank
        result = self._result = RunResult(WorkerState.FAILED, failures={hang.rank: hang.failure})
        return HangFound(*_judged(result, worker_group))

    def _result_of(self, worker_group: WorkerGroup, ended: RunProcsResult) -> RunResult:
        """The result of a set that ended, by global rank."""
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        self._warn_of_late_crashes(ranks, ended)
        if not ended.is_failed():
            return RunResult(
                WorkerState.SUCCEEDED,
                return_values={ranks[local_rank]: value for local_rank, value in ended.return_values.items()},
            )
        for failure in ended.failures.values():
            self._explain(failure)
        failures = {ranks[local_rank]: failure for local_rank, failure in ended.failures.items()}
        if not self._has_asked_others:
            self._ask_others_after_timeout(failures)
        self._survivors.accuse(failures)
        return RunResult(
            WorkerState.FAILED,
            failures=failures,
            terminated={ranks[local_rank]: code for local_rank, code in ended.terminated.items()},
        )

    def _warn_of_late_crashes(self, ranks: dict[int, int], ended: RunProcsResult) -> None:
        """Warn of crashes after a successful end: they are not failures, but the user should know."""
        for local_rank, crash in ended.late_crashes.items():
            if crash.pid in self._told_late_crashes:
                continue
            self._told_late_crashes.add(crash.pid)
            text = (
                f"rank {ranks[local_rank]} (pid {crash.pid}) crashed with {crash.signal_name()} while its interpreter "
                "shut down, after its program had succeeded: this counts as a success, unless you give --strict-exit. "
                "With torch, call torch.distributed.destroy_process_group() at the end of the program"
            )
            log.warning("%s", text)
            self._run_events.late_crash(ranks[local_rank], crash, text)

    def _ask_others_after_timeout(self, failures: dict[int, ProcessFailure]) -> None:
        """After a timeout, ask where the other nodes' workers are. Reporting the failure would stop them."""
        from holdfast.errors.failure import in_order
        from holdfast.errors.kind import FailureKind, says_timeout

        self._has_asked_others = True
        _, failure = in_order(failures)[0]
        if failure.kind is FailureKind.COMMUNICATION and says_timeout(failure.message):
            from holdfast.errors.summary import gist

            why = gist(failure)
            self._survivors.add(self._inspection.ask_after_timeout(why, self._survivors.ranks_here()), why)

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

    def _is_stuck(self) -> bool:
        assert self._pcontext is not None
        if self._stuck_watch is None:
            return False
        pid = self._stuck_watch.look(self._pcontext.pids().values(), time.monotonic())
        if pid is not None:
            stuck_s = self._stuck_watch.timeout_s
            log.error("PID %s has been stuck in the kernel for %s s; a restart cannot help", pid, stuck_s)
        return pid is not None

    def _explain(self, failure: ProcessFailure) -> None:
        self._timers.explain(failure, lambda: self._survivors.place_of(failure.local_rank))

    def _before_exit_barrier(self) -> None:
        self._inspection.workers_ended()
        self._worker_group.spec.rdzv_handler.do_meanwhile(self._inspection)

    def _take_no_requests(self) -> None:
        self._inspection.close()

    # Stopping

    def _ask_to_stop(self, worker_group: WorkerGroup, reason: str) -> float | None:
        del worker_group
        grace_s = self._stop_grace_s
        if self._pcontext is None or not self._pcontext.running() or grace_s <= 0:
            return None
        if not self._pages.ask_to_stop(reason, grace_s):
            return None
        return time.monotonic() + grace_s

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        del worker_group
        self._end_attempt(signal.SIGTERM, self._shutdown_timeout)
        self._raise_if_stuck()
        if self._worker_group.spec.rdzv_handler.counts_restarts:
            self._survivors.keep()  # the next start may be far off; a single node starts again at once

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        try:
            self._end_attempt(death_sig, timeout)
        finally:
            self._timers.close()
            # A node that leaves gives back its lease, and the other nodes go on.
            if self._is_interrupted and self._worker_group.spec.rdzv_handler.counts_restarts:
                self._raise_if_stuck()
        self._survivors.keep()

    def _raise_if_stuck(self) -> None:
        if self._pcontext is None or not self._pcontext.stuck:
            return
        from holdfast.errors.tree import InfrastructureError

        pids = ", ".join(map(str, self._pcontext.stuck))
        raise InfrastructureError(
            f"SIGKILL did not end PID {pids}, which is stuck in the kernel or belongs to another user; the job ends, "
            "because no new worker may run beside it"
        )

    def _end_attempt(self, death_sig: signal.Signals, timeout: float) -> None:
        try:
            if self._pcontext is not None:
                self._close(self._pcontext, death_sig, timeout)
        finally:
            # After the workers have ended: a worker that leaves a timed section while it exits looks for the pipe.
            self._timers.attempt_ended()

    def _close(self, context: PContext, death_sig: signal.Signals, timeout: float) -> None:
        try:
            context.close(death_sig, timeout)
        except SignalException:
            if self._is_interrupted:
                # A second signal means: stop now. A third signal cannot make this faster, and must not let this node
                # leave before the workers are gone.
                with Uninterrupted():
                    context.close(timeout=0)
            raise

    # Health

    def _setup_healthcheck(self) -> None:
        """Start the health check. It runs from before the rendezvous until after the exit barrier."""
        text = os.environ.get(HEALTH_CHECK_PORT)
        if self._health_check_server is not None:
            self._health_check_server.start()
        elif text is not None:
            from holdfast.agent.health import open_health_check

            self._health_check_server = open_health_check(text, self._timers.last_progress)


def _judged(result: RunResult, worker_group: WorkerGroup) -> tuple[Fault, str]:
    from holdfast.agent.verdicts import fault_of, outline

    return fault_of(result, worker_group.workers[0]), outline(result)
