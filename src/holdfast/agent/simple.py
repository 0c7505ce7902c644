"""The agent's decisions: when to start, restart and stop the workers of one node. How is left to subclasses."""

from __future__ import annotations

import os
import select
import signal
import time
from abc import ABC, abstractmethod

from holdfast.agent.chronicle import Chronicle
from holdfast.agent.group import RunResult, Worker, WorkerGroup
from holdfast.agent.journal import Journal
from holdfast.agent.ranks import assign_ranks
from holdfast.agent.state import Step, WorkerState, after
from holdfast.logger import get_logger
from holdfast.metrics import prof, put_metric
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import SignalException, SignalWakeUp, Uninterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from holdfast.agent.group import WorkerSpec
    from holdfast.errors import ProcessFailure
    from holdfast.events import Event
    from holdfast.rendezvous.errors import JobFailedError
    from holdfast.rendezvous.records import Verdict
    from holdfast.rendezvous.restarts import Past, Ruling

EXIT_BARRIER_TIMEOUT_S = 300
"""How long a node whose workers are done waits for the other nodes, where nobody says otherwise."""

RESTART_POLICIES = ("auto", "always")

log = get_logger(__name__)


class ElasticAgent(ABC):
    """Runs the workers of one node and keeps them running."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to their end: success, or a failure that no restart is left for."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The group that this agent looks after; not to be changed by others."""


class SimpleElasticAgent(ElasticAgent):
    """An agent for one role, to build on.

    A subclass says how workers are started, stopped, looked at and shut down (the four abstract methods), and may
    say with `_wait_for_change` what is worth a look; without that it looks every `monitor_interval`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        exit_barrier_timeout: float = EXIT_BARRIER_TIMEOUT_S,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        if spec.restart_policy not in RESTART_POLICIES:
            from holdfast.errors.tree import InputError  # noqa: PLC0415 - only on the way out

            raise InputError(f"restart_policy {spec.restart_policy!r}: write one of {', '.join(RESTART_POLICIES)}")
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._forgiven_restarts = 0
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout
        self._began = time.monotonic()
        self._journal = Journal(self._worker_group)
        self._chronicle = Chronicle(self._journal, self._worker_group, os.urandom(8).hex())
        self._past: Past | None = None
        self._is_interrupted = False
        self._recorded_failures: object = None
        self._waited_s = 0.0

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        del role
        return self._worker_group

    # What a subclass brings

    @abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the workers; returns an id for each local rank."""

    @abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers, all of them, on this node; they may be started again."""

    @abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Look at the workers, without waiting, and say how they are."""

    @abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        """End whatever is left, once and for all."""

    def _serve_store(self, worker_group: WorkerGroup) -> None:
        """Begin to answer those who connect to the workers' store, if this node has it; they may wait until then."""
        if worker_group.hosting is not None and worker_group.hosting.store is not None:
            worker_group.hosting.store.start()

    def _is_failing(self, worker_group: WorkerGroup) -> bool:
        """Whether a worker has failed, and the others are about to be stopped: `_monitor_workers` will say so."""
        del worker_group
        return False

    def _look_before_stop(self, reason: str) -> None:
        """The workers are to be stopped before their work is done: see where they are, if that takes no time."""

    def _before_exit_barrier(self) -> None:
        """The workers have succeeded, and this node is about to wait for the others."""

    def _take_no_requests(self) -> None:
        """From now on, this node waits in a way in which it cannot answer anybody."""

    def _failures_at_the_end(self, worker_group: WorkerGroup) -> dict[int, ProcessFailure]:
        """The workers, by global rank, that turned out to have failed by themselves when they were stopped."""
        del worker_group
        return {}

    def _node_of_failure(self) -> int | None:
        """The rank of the node that is to blame, if it is another one."""
        return None

    def _record_failed_finish(self, result: RunResult) -> None:
        """Workers were asked to end, and one failed at it. It costs no restart, but it is told."""
        self._chronicle.failed(result.failures)
        log.warning("while the workers were to end by themselves, %s", _outline(result))
        self._record_worker_events(result)

    def _let_workers_finish(self, worker_group: WorkerGroup, reason: str) -> None:
        """Ask the workers to end by themselves before they are stopped, if there is a way to ask, and wait a while."""

    def _wait_for_change(self, worker_group: WorkerGroup) -> None:
        """Wait until `_monitor_workers` may have something new to say. Signals interrupt it."""
        with Uninterrupted(), SignalWakeUp() as signals:
            fds = [] if signals.fd is None else [signals.fd]
            select.select(fds, [], [], worker_group.spec.monitor_interval)

    # From the rendezvous to running workers

    @prof
    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Meet the other nodes, and give each worker of this one its ranks."""
        spec = worker_group.spec
        if spec.rdzv_handler.counts_restarts:  # a node that is alone has nobody to compare with
            spec.rdzv_handler.identify(*spec.get_program())
        spec.rdzv_handler.bring(
            spec.role, spec.local_world_size, spec.max_restarts, spec.restart_window, spec.restart_policy
        )
        began = time.monotonic()
        with self._journal.timed("RENDEZVOUS"):
            info = spec.rdzv_handler.next_rendezvous()
        self._waited_s = time.monotonic() - began
        if info.restart_count is not None:
            self._remaining_restarts = spec.max_restarts - info.restart_count
        worker_group.job = info.job
        worker_group.max_restarts = spec.max_restarts if info.max_restarts is None else info.max_restarts
        if info.lost:
            log.warning("lost %s: the workers start again, and no restart is counted", ", ".join(info.lost))
        if info.after is not None:
            self._tell_verdict(info.after, info.after.generation or None)
        worker_group.nodes = info.nodes
        worker_group.generation = info.generation
        worker_group.store = info.store
        worker_group.group_rank = info.rank
        worker_group.group_world_size = info.world_size
        worker_group.master_addr = spec.master_addr or info.bootstrap_store_info.master_addr
        worker_group.master_port = spec.master_port or info.bootstrap_store_info.master_port
        worker_group.coordinator_port = info.coordinator_port
        worker_group.hosting = info.hosting
        with self._journal.timed("ASSIGN_WORKER_RANKS"):
            worker_group.workers = self._assign_worker_ranks(info.store, info.rank, info.world_size, spec)
        if info.hosting is not None and info.rank == 0:
            info.hosting.expect(worker_group.workers[0].world_size, info.world_size)
        log.info(
            "rendezvous complete: node %s of %s, master at %s:%s, global ranks %s, restart %s",
            *(info.rank, info.world_size, worker_group.master_addr, worker_group.master_port),
            *([worker.global_rank for worker in worker_group.workers], self._restart_count()),
        )

    @prof
    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """The workers of this node with their ranks, from what all nodes run."""
        nodes = self._worker_group.nodes
        if nodes is not None:
            return assign_ranks(nodes, group_rank)
        mine = (spec.role, spec.local_world_size)
        same_everywhere = store is None or os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL") == "1"
        if group_world_size == 1 or same_everywhere:
            return assign_ranks([mine] * group_world_size, group_rank)
        from holdfast.agent.through_store import exchange_ranks  # noqa: PLC0415 - only where nodes tell each other

        return exchange_ranks(store, group_rank, group_world_size, *mine)

    @prof
    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """Meet the other nodes and start this one's workers."""
        self._rendezvous(worker_group)
        began = time.monotonic()
        with self._journal.timed("START"):
            ids = self._start_workers(worker_group)
        started_s = time.monotonic() - began
        for worker in worker_group.workers:
            worker.id = ids[worker.local_rank]
        self._serve_store(worker_group)
        worker_group.state = after(worker_group.state, Step.START)
        self._chronicle.attempt_started(self._restart_count(), self._waited_s, started_s)
        self._journal.open(self._event_log_path())

    @prof
    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers, and start them in a new round."""
        self._stop_workers(worker_group)
        late = self._failures_at_the_end(worker_group)
        if late:
            # The cause, perhaps, of what others told of first: an interpreter may take long to end.
            self._chronicle.failed(late)
            self._report(late)
        worker_group.state = after(after(worker_group.state, Step.STOP), Step.RESTART)
        self._initialize_workers(worker_group)

    def _restart_count(self) -> int:
        """All of them: it rises with every restart, also where a window gives the budget back."""
        return self._forgiven_restarts + self._worker_group.spec.max_restarts - self._remaining_restarts

    # Running

    def run(self, role: str = "default") -> RunResult:
        from holdfast.rendezvous.errors import RendezvousGracefulExitError  # noqa: PLC0415 - not the agent's everyday

        self._began = time.monotonic()
        self._chronicle.run_started()
        death_sig = signal.SIGTERM
        outcome, why = "closed", "the agent failed"
        try:
            result = self._invoke_run(role)
            outcome, why = ("failed", result.reason) if result.is_failed() else ("succeeded", "")
            self._record_metrics(result)
            if result.failures is not self._recorded_failures:
                self._record_worker_events(result)
        except RendezvousGracefulExitError as reason:
            outcome, why = "succeeded", f"this node was not needed: {reason}"
            log.info("%s", why)
            return RunResult(WorkerState.SUCCEEDED)
        except SignalException as received:
            death_sig = received.sigval
            outcome, why = "interrupted", str(received)
            self._is_interrupted = True
            is_running = WorkerState.is_running(self._worker_group.state)
            log.warning("%s%s", received, "; passing it on to the workers" if is_running else "")
            if is_running:
                self._worker_group.spec.rdzv_handler.announce_leave(death_sig.name)
                self._let_workers_finish(self._worker_group, f"the agent got {death_sig.name}")
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            try:
                self._shutdown(death_sig, timeout=self._shutdown_timeout)
            finally:
                if self._worker_group.hosting is not None:
                    self._worker_group.hosting.close()
                self._chronicle.run_ended(outcome, why, self._restart_count())
                self._journal.close()
        return result

    def _invoke_run(self, role: str = "default") -> RunResult:
        """Start the workers and see them through: the whole of an agent's decisions."""
        del role
        group = self._worker_group
        spec = group.spec
        result = RunResult(WorkerState.INIT)
        from holdfast.rendezvous.errors import JobFailedError  # noqa: PLC0415 - not the agent's everyday

        try:
            self._initialize_workers(group)
            while True:
                self._wait_for_change(group)
                result = self._monitor_workers(group)
                put_metric(f"workers.{spec.role}.remaining_restarts", self._remaining_restarts)
                put_metric(f"workers.{spec.role}.{result.state.name.lower()}", 1)
                if self._is_final(group, result):
                    return result
        except JobFailedError as failed:
            group.state = after(group.state, Step.GIVE_UP)
            return self._job_failed(failed, result)

    def _is_final(self, group: WorkerGroup, result: RunResult) -> bool:
        """Act on what a look at the workers has shown. True if that was the end."""
        handler = group.spec.rdzv_handler
        if result.state is WorkerState.SUCCEEDED:
            group.state = after(group.state, Step.SUCCEED)
            self._chronicle.attempt_ended("succeeded")
            if self._exit_barrier() is not False:
                return True
            over = handler.round_over()
            reason = "the others do not go on" if over is None else over.reason
            log.warning("the workers of this node have succeeded, but the job cannot end with that: %s", reason)
            self._restart_workers(group)
        elif result.state in (WorkerState.FAILED, WorkerState.UNHEALTHY):
            group.state = after(group.state, Step.FAIL)
            self._chronicle.failed(result.failures)
            self._chronicle.attempt_ended("failed", _outline(result))
            if result.state is WorkerState.UNHEALTHY:
                self._look_before_stop("a worker is stuck in the kernel, and all were stopped")
            return self._is_failure_final(group, result)
        elif result.state is WorkerState.STOPPED:
            reason = "the workers were killed: this node could not renew its lease in time"
            log.warning("%s", reason)
            self._chronicle.attempt_ended("stopped", reason)
            self._restart_workers(group)
        elif result.state is not WorkerState.HEALTHY:
            raise AssertionError(f"workers of role {group.spec.role!r} cannot be {result.state.value} now")
        elif (over := handler.round_over()) is not None and not self._is_failing(group):
            log.warning("stopping the workers: %s", over.reason)
            if over.may_finish:
                self._let_workers_finish(group, over.reason)
            else:
                self._look_before_stop(over.reason)
            self._chronicle.attempt_ended("stopped", over.reason)
            self._restart_workers(group)
        return False

    def _is_failure_final(self, group: WorkerGroup, result: RunResult) -> bool:
        """Restart after a failure, if the budget allows it: this node's, or the job's, which the rendezvous knows."""
        spec = group.spec
        # Stuck in the kernel, which no restart can help: the end for all.
        is_hopeless = result.state is WorkerState.UNHEALTHY and self._remaining_restarts == 0
        if spec.rdzv_handler.counts_restarts and not is_hopeless:
            self._report(result.failures)
            self._record_worker_events(result)
            self._recorded_failures = result.failures
            log.warning("%s", _outline(result))
            self._restart_workers(group)
            return False
        ruling = self._rule(result)
        if self._remaining_restarts == 0 or not ruling.restarts:
            self._stop_workers(group)
            group.state = after(after(group.state, Step.STOP), Step.GIVE_UP)
            result.state = WorkerState.FAILED
            result.reason = ruling.reason if spec.max_restarts else ""
            return True
        self._record_worker_events(result)
        self._past = ruling.past
        self._remaining_restarts -= 1
        spent = spec.max_restarts - self._remaining_restarts
        log.warning("%s; restart %s of %s", _outline(result), spent, spec.max_restarts)
        if ruling.pause_s:
            log.warning("a pause of %s s before the next attempt, after faults in a row", f"{ruling.pause_s:g}")
            go_on_at = time.monotonic() + ruling.pause_s  # it passes while the last processes end
            self._stop_workers(group)
            group.state = after(group.state, Step.STOP)  # for a signal that comes meanwhile: nobody is left to ask
            self._pause(max(0.0, go_on_at - time.monotonic()))
        self._restart_workers(group)
        return False

    def _rule(self, result: RunResult) -> Ruling:
        """What follows from a failed attempt of a node that decides for itself."""
        from holdfast.errors.failure import in_order  # noqa: PLC0415 - only of a failure
        from holdfast.rendezvous.restarts import Fault, Limits, Past, hopeless, place, rule  # noqa: PLC0415 - likewise

        spec = self._worker_group.spec
        rank, cause = in_order(result.failures)[0] if result.failures else (0, self._unwell())
        fault = Fault(
            cause.kind,
            cause.ran_s,
            place(cause.kind, cause.exception, cause.where, cause.ran_s),
            hopeless(cause),
        )
        limits = Limits(spec.max_restarts, spec.restart_window, spec.restart_policy)
        past = self._past or Past()
        ruling = rule(past, fault, limits)
        if ruling.restarts and past.spent > 0 and ruling.past.spent == 1:
            log.info("the workers ran for %s s: restarts are counted anew", round(cause.ran_s))
            self._forgiven_restarts += spec.max_restarts - self._remaining_restarts
            self._remaining_restarts = spec.max_restarts
        self._chronicle.verdict(
            rank,
            cause,
            max(len(result.failures) - 1, 0),
            restarts=ruling.restarts and self._remaining_restarts > 0,
            reason=ruling.reason,
        )
        return ruling

    def _pause(self, pause_s: float) -> None:
        """Let some time pass. Signals interrupt it."""
        with Uninterrupted(), SignalWakeUp() as signals:
            select.select([] if signals.fd is None else [signals.fd], [], [], pause_s)

    def _unwell(self) -> ProcessFailure:
        from holdfast.errors.failure import ProcessFailure  # noqa: PLC0415 - only of a failure

        failure = ProcessFailure(self._worker_group.workers[0].local_rank, 0, 1, "")
        failure.message = "the workers are not well"
        return failure

    def _report(self, failures: Mapping[int, ProcessFailure]) -> None:
        """Tell the other nodes of the failures here: the cause among them, and how many more there are."""
        from holdfast.errors.failure import in_order  # noqa: PLC0415 - only of a failure

        rank, failure = (
            in_order(failures)[0] if failures else (self._worker_group.workers[0].global_rank, self._unwell())
        )
        others = max(len(failures) - 1, 0)
        self._worker_group.spec.rdzv_handler.report_failure(rank, failure, others, self._node_of_failure())

    def _tell_verdict(self, verdict: Verdict, generation: int | None) -> None:
        """Why all nodes begin anew after this generation, which a newcomer was not in: the same words on each."""
        from holdfast.agent.elsewhere import failure_elsewhere  # noqa: PLC0415 - only of a failure

        cause = verdict.cause
        where = f", at {cause.where}" if cause.where else ""
        victims = f"; {verdict.victims} more failed because of it" if verdict.victims else ""
        count, budget = self._restart_count(), self._worker_group.max_restarts
        # More than the budget were possible only because a window gave some of it back: "5 of 1" would be nonsense.
        restart = f"restart {count} of {budget}" if count <= budget else f"restart {count}"
        log.warning(
            "%s: rank %s on %s failed: %s%s%s",
            *(restart, cause.rank, cause.host, cause.message, where, victims),
        )
        self._chronicle.verdict(
            cause.rank, failure_elsewhere(cause), verdict.victims, restarts=True, reason="", generation=generation
        )

    def _job_failed(self, failed: JobFailedError, last: RunResult) -> RunResult:
        """The end of a job that failed: what every node tells of it is the first failure of all, in the same words."""
        from holdfast.agent.elsewhere import failure_elsewhere  # noqa: PLC0415 - only of a failure

        told = failed.failure
        cause = failure_elsewhere(told)
        here = last.failures.get(told.rank)
        terminated = None
        if here is not None and here.pid == told.pid:
            cause.error_file, cause.error_file_data = here.error_file, here.error_file_data
            terminated = last.terminated
        reason = failed.ruling if self._worker_group.spec.max_restarts else ""
        self._chronicle.verdict(told.rank, cause, failed.victims, restarts=False, reason=failed.ruling)
        result = RunResult(
            WorkerState.FAILED,
            failures={told.rank: cause},
            terminated=terminated,
            victims=failed.victims,
            reason=reason,
        )
        if terminated is not None and last.failures is self._recorded_failures:
            self._recorded_failures = result.failures
        return result

    def _exit_barrier(self) -> bool | None:
        """Wait until the workers of every node are done, so that no node takes away what others still need.

        False if the job cannot end yet, and the workers are needed again.
        """
        self._before_exit_barrier()
        try:
            is_over = self._worker_group.spec.rdzv_handler.wait_for_end(self._exit_barrier_timeout)
        except TimeoutError as missing:
            log.warning("left the exit barrier: %s", missing)
            return True
        group = self._worker_group
        rank, nodes = group.group_rank or 0, group.group_world_size or 1
        if is_over is None and group.store is not None and nodes > 1:
            from holdfast.agent.through_store import wait_for_all  # noqa: PLC0415 - only where nodes tell each other

            self._take_no_requests()
            wait_for_all(group.store, rank, nodes, self._exit_barrier_timeout)
        return is_over

    # Telling

    def get_event_succeeded(self) -> Event:
        """The event of an agent whose job has succeeded."""
        return self._journal.agent_event("SUCCEEDED", self._run_time_s(), self._restart_count())

    def get_event_failed(self) -> Event:
        """The event of an agent whose job has failed, with the exception that is being handled."""
        import traceback  # noqa: PLC0415 - only of a failure

        return self._journal.agent_event("FAILED", self._run_time_s(), self._restart_count(), traceback.format_exc())

    def record(self, event: Event) -> None:
        """Write an event of a caller's where those of this agent are."""
        self._journal.record(event)
        self._journal.close()

    def _event_log_path(self) -> str | None:
        """The file that events are kept in, if there is a place for it."""
        return None

    def _run_time_s(self) -> int:
        return int(time.monotonic() - self._began)

    def _record_worker_events(self, result: RunResult) -> None:
        """One event for each worker: how it ended."""
        for worker in self._worker_group.workers:
            failure = result.failures.get(worker.global_rank)
            self._journal.worker_ended(
                worker,
                self._get_worker_state(worker, result),
                self._run_time_s(),
                self._restart_count(),
                failure,
                result.terminated.get(worker.global_rank, 0),
            )

    def _get_worker_state(self, worker: Worker, result: RunResult) -> str:
        if worker.global_rank in result.failures:
            return "FAILED"
        if result.state is WorkerState.SUCCEEDED:
            return "SUCCEEDED"
        return "TERMINATED"

    def _record_metrics(self, result: RunResult) -> None:
        """How the job went: whether it succeeded, and whether it took restarts."""
        role = self._worker_group.spec.role
        failed, restarted = result.is_failed(), self._restart_count() > 0
        put_metric(f"workers.{role}.run_total", 1)
        for outcome, is_so in (("success", not failed), ("failed", failed)):
            put_metric(f"workers.{role}.run_{outcome}_with_retries", int(is_so and restarted))
            put_metric(f"workers.{role}.run_{outcome}_no_retries", int(is_so and not restarted))
        self._record_flakiness_metric(failed)

    def _record_flakiness_metric(self, is_failed: bool = False) -> None:
        """100 for a job that failed; else the share of its attempts that did, in per cent."""
        spec = self._worker_group.spec
        flakiness = 100.0 if is_failed else 100.0 - 100.0 * (self._remaining_restarts + 1) / (spec.max_restarts + 1)
        put_metric(f"workers.{spec.role}.flakiness", int(flakiness))


def _outline(result: RunResult) -> str:
    """A failed attempt in one line; the whole of it is in the workers' stderr and error files."""
    if not result.failures:
        return "the workers are not well"
    from holdfast.errors.failure import in_order  # noqa: PLC0415 - only of a failure
    from holdfast.errors.summary import gist  # noqa: PLC0415 - likewise

    (rank, first), *others = in_order(result.failures)
    more = f", and {len(others)} more" if others else ""
    return f"rank {rank} failed: {gist(first).rstrip('.')}{more}"
