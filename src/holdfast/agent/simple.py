"""The shell around the agent's decisions (`core`).

It turns what happens to the workers of one node into events, and carries out the effects. Subclasses start, watch and
stop the workers.
"""

from __future__ import annotations

import os
import select
import signal
import time
from abc import ABC, abstractmethod

from holdfast.agent.core import ended, step
from holdfast.agent.core_model import (
    AgentState,
    AnnounceLeave,
    Asked,
    AskToStop,
    BarrierLeft,
    DeadlinePassed,
    Finish,
    JobFailed,
    LookBeforeStop,
    Met,
    NotNeeded,
    Outcome,
    PauseUntil,
    Record,
    RecordFailures,
    RecordVerdict,
    RecordWorkers,
    Report,
    RestartSet,
    RoundOver,
    Say,
    SetFailed,
    SetFenced,
    SetSucceeded,
    Signalled,
    Started,
    StartSet,
    Stopped,
    StopSet,
    WaitForOthers,
)
from holdfast.agent.event_writer import EventWriter
from holdfast.agent.group import RunResult, Worker, WorkerGroup
from holdfast.agent.ranks import assign_ranks
from holdfast.agent.run_events import RunEvents
from holdfast.agent.state import WorkerState
from holdfast.logger import get_logger
from holdfast.metrics import prof, put_metric
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import SignalException, SignalWakeUp, Uninterrupted
from holdfast.settings import EXIT_BARRIER_TIMEOUT_S, RESTART_POLICIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from holdfast import events
    from holdfast.agent.core_model import Effect, Event
    from holdfast.agent.group import WorkerSpec
    from holdfast.errors import ProcessFailure
    from holdfast.rendezvous.errors import JobFailedError
    from holdfast.rendezvous.records import Verdict
    from holdfast.rendezvous.restarts import Fault

UNWELL = "workers are unhealthy"

log = get_logger(__name__)


class ElasticAgent(ABC):
    """Runs the workers of one node and keeps them running."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to their end: success, or a failure with no restart left."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The group of this agent's workers. Callers must not change it."""


class SimpleElasticAgent(ElasticAgent):
    """The base of an agent for one role.

    A subclass starts, stops, monitors and shuts down workers (the four abstract methods). It may override
    `_wait_for_change` to wait for notifications; by default the agent looks every `monitor_interval`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        exit_barrier_timeout: float = EXIT_BARRIER_TIMEOUT_S,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        settings = self._settings = spec.get_settings()
        if settings.restart_policy not in RESTART_POLICIES:
            from holdfast.errors.tree import InputError

            raise InputError(f"restart_policy {settings.restart_policy!r}: write one of {', '.join(RESTART_POLICIES)}")
        self._worker_group = WorkerGroup(spec)
        self._state = AgentState(settings.restart_limits, spec.rdzv_handler.counts_restarts)
        self._result = RunResult(WorkerState.INIT)
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout
        self._began = time.monotonic()
        self._event_writer = EventWriter(self._worker_group)
        self._run_events = RunEvents(self._event_writer, self._worker_group, os.urandom(8).hex())
        self._is_interrupted = False
        self._has_taken_part = True
        self._waited_s = 0.0

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        del role
        return self._worker_group

    # To be overridden by subclasses

    @abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the workers, and return an id for each local rank."""

    @abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop all workers of this node. They may be started again."""

    @abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Return the state of the workers, without waiting."""

    @abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        """Stop everything for good."""

    def _serve_store(self, worker_group: WorkerGroup) -> None:
        """Start serving the workers' store, if this node hosts it. Clients may wait until then."""
        if worker_group.hosting is not None and worker_group.hosting.store is not None:
            worker_group.hosting.store.start()

    def _look_before_stop(self, reason: str) -> None:
        """Collect the workers' stacks, if that takes no time: they will be stopped before their work is done."""

    def _before_exit_barrier(self) -> None:
        """Called when the workers have succeeded, before this node waits for the others."""

    def _take_no_requests(self) -> None:
        """Stop taking requests: this node now waits in a way that cannot answer them."""

    def _failures_at_the_end(self, worker_group: WorkerGroup) -> dict[int, ProcessFailure]:
        """The workers, by global rank, that had failed by themselves when they were stopped."""
        del worker_group
        return {}

    def _node_of_failure(self) -> int | None:
        """The rank of the node to blame, if it is another one."""
        return None

    def _ask_to_stop(self, worker_group: WorkerGroup, reason: str) -> float | None:
        """Ask the workers to end by themselves, and return their deadline; None if there is no way to ask."""
        del worker_group, reason
        return None

    def _wait_for_change(self, worker_group: WorkerGroup) -> None:
        """Wait until `_monitor_workers` may have news. Signals interrupt it."""
        with Uninterrupted(), SignalWakeUp() as signals:
            fds = [] if signals.fd is None else [signals.fd]
            select.select(fds, [], [], worker_group.spec.monitor_interval)

    # From the rendezvous to running workers

    @prof
    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Meet the other nodes, and assign ranks to this node's workers."""
        spec = worker_group.spec
        if spec.rdzv_handler.counts_restarts:  # a single node has no other to compare with
            spec.rdzv_handler.identify(*spec.get_program())
        spec.rdzv_handler.bring(spec.get_settings())
        began = time.monotonic()
        with self._event_writer.timed("RENDEZVOUS"):
            info = spec.rdzv_handler.next_rendezvous()
        self._waited_s = time.monotonic() - began
        self._hear(Met(info.restart_count))
        worker_group.job = info.job
        worker_group.max_restarts = spec.max_restarts if info.max_restarts is None else info.max_restarts
        if info.lost:
            log.warning("lost %s: restarting the workers; this does not count as a restart", ", ".join(info.lost))
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
        with self._event_writer.timed("ASSIGN_WORKER_RANKS"):
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
        """This node's workers with their ranks, derived from what all nodes run."""
        nodes = self._worker_group.nodes
        if nodes is not None:
            return assign_ranks(nodes, group_rank)
        mine = (spec.role, spec.local_world_size)
        same_everywhere = store is None or os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL") == "1"
        if group_world_size == 1 or same_everywhere:
            return assign_ranks([mine] * group_world_size, group_rank)
        from holdfast.agent.torch_store_protocol import exchange_ranks

        return exchange_ranks(store, group_rank, group_world_size, *mine)

    @prof
    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """Meet the other nodes and start this node's workers."""
        self._rendezvous(worker_group)
        began = time.monotonic()
        with self._event_writer.timed("START"):
            ids = self._start_workers(worker_group)
        started_s = time.monotonic() - began
        for worker in worker_group.workers:
            worker.id = ids.get(worker.local_rank)  # None if its keeper was killed first, or its lease was over
        self._serve_store(worker_group)
        self._hear(Started())
        self._run_events.attempt_started(self._restart_count(), self._waited_s, started_s)
        self._event_writer.open(self._event_log_path())

    @prof
    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers, meet the other nodes again, and start new workers."""
        self._stop_workers(worker_group)
        late = self._failures_at_the_end(worker_group)
        if late:
            # This may be the cause of failures that were reported earlier: an interpreter can take long to exit.
            self._run_events.failed(late)
            self._report(late)
        self._hear(Stopped())
        self._initialize_workers(worker_group)

    def _restart_count(self) -> int:
        """All restarts: the count rises with every restart, even if a window gives the budget back."""
        return self._state.restarts

    @property
    def _remaining_restarts(self) -> int:
        """The restarts left, under the name that subclasses made for torch use."""
        return self._state.remaining

    @_remaining_restarts.setter
    def _remaining_restarts(self, remaining: int) -> None:
        self._state = self._state.replace(spent=self._state.max_restarts - remaining)

    # Running

    def run(self, role: str = "default") -> RunResult:
        self._began = time.monotonic()
        self._event_writer.hold()
        self._run_events.run_started()
        death_sig = signal.SIGTERM
        try:
            result = self._invoke_run(role)
            if self._state.outcome is None:  # a subclass with its own run loop knows how it ended
                self._state = ended(self._state, Outcome.FAILED if result.is_failed() else Outcome.SUCCEEDED)
                self._record_worker_events(result, self._restart_count())
            if self._has_taken_part:
                self._record_metrics(result)
        except SignalException as received:
            death_sig = received.sigval
            self._is_interrupted = True
            self._state = ended(self._state, Outcome.INTERRUPTED, str(received))
            raise
        except Exception as error:
            self._state = ended(self._state, Outcome.CLOSED, f"{type(error).__name__}: {error}")
            raise
        finally:
            try:
                self._shutdown(death_sig, timeout=self._shutdown_timeout)
            finally:
                if self._worker_group.hosting is not None:
                    self._worker_group.hosting.close()
                outcome = self._state.outcome or Outcome.CLOSED
                self._run_events.run_ended(outcome, self._state.reason, self._restart_count())
                self._event_writer.let_go()
        return result

    def _invoke_run(self, role: str = "default") -> RunResult:
        """Run the workers to their end: turn what happens into events, and carry out the effects."""
        from holdfast.rendezvous.errors import JobFailedError, RendezvousGracefulExitError

        del role
        effects: tuple[Effect, ...] = (StartSet(),)
        interrupted: SignalException | None = None
        while self._state.outcome is None:
            try:
                event = self._carry_out(effects) or self._next_event()
            except SignalException as received:
                interrupted, self._is_interrupted = received, True
                event = Signalled(received.sigval.name, str(received))
            except JobFailedError as failed:
                self._result = self._failed_elsewhere(failed, self._result)
                event = JobFailed(failed.ruling)
            except RendezvousGracefulExitError as reason:
                self._result = RunResult(WorkerState.SUCCEEDED)
                self._has_taken_part = False
                event = NotNeeded(str(reason))
            effects = self._hear(event)
        self._carry_out(effects)
        if interrupted is not None:
            raise interrupted
        return self._result

    def _hear(self, event: Event) -> tuple[Effect, ...]:
        """Advance the state by `event`, and return the effects."""
        self._state, effects = step(self._state, event, time.monotonic())
        self._worker_group.state = self._state.worker_state
        return effects

    def _next_event(self) -> Event:
        """Wait for the next event."""
        group = self._worker_group
        role = group.spec.role
        while True:
            self._wait_for_change(group)
            event = self._look(group)
            put_metric(f"workers.{role}.remaining_restarts", self._remaining_restarts)
            put_metric(f"workers.{role}.{self._result.state.name.lower()}", 1)
            if event is not None:
                return event

    def _look(self, worker_group: WorkerGroup) -> Event | None:
        """Check the workers and the rendezvous for an event."""
        result = self._result = self._monitor_workers(worker_group)
        match result.state:
            case WorkerState.SUCCEEDED:
                return SetSucceeded()
            case WorkerState.FAILED | WorkerState.UNHEALTHY:
                return SetFailed(self._fault(result), outline(result))
            case WorkerState.STOPPED:
                return SetFenced()
            case WorkerState.HEALTHY:
                return self._news_of_the_round()
        raise AssertionError(f"workers of role {worker_group.spec.role!r} cannot be {result.state.value} now")

    def _news_of_the_round(self) -> Event | None:
        """Whether the drain deadline has passed, or the other nodes want to meet again.

        Workers that stop already need not be told of the round's end. But it must be read, or its descriptor stays
        readable, and the wait for these workers does not sleep.
        """
        until = self._state.until
        if until is not None and time.monotonic() >= until:
            return DeadlinePassed()
        over = self._worker_group.spec.rdzv_handler.round_over()
        return None if over is None else RoundOver(over.reason, over.may_finish)

    def _carry_out(self, effects: tuple[Effect, ...]) -> Event | None:
        """Carry out effects in order. The last one may have an answer."""
        answer = None
        for effect in effects:
            answer = self._carry_out_one(effect, self._worker_group)
        return answer

    def _carry_out_one(self, effect: Effect, group: WorkerGroup) -> Event | None:
        match effect:
            case StartSet():
                self._initialize_workers(group)
            case RestartSet():
                self._restart_workers(group)
            case StopSet():
                self._stop_workers(group)
            case AskToStop(reason):
                until = self._ask_to_stop(group, reason)
                return DeadlinePassed() if until is None else Asked(until)
            case LookBeforeStop(reason):
                self._look_before_stop(reason)
            case PauseUntil(at):
                self._pause(max(0.0, at - time.monotonic()))
                return DeadlinePassed()
            case WaitForOthers():
                return BarrierLeft(self._needed_again() if self._exit_barrier() is False else "")
            case _:
                self._tell(effect, group)
        return None

    def _tell(self, effect: Effect, group: WorkerGroup) -> None:
        """Carry out effects for others: a person, the other nodes, the caller of `run`."""
        match effect:
            case Say(text, is_info):
                (log.info if is_info else log.warning)("%s", text)
            case AnnounceLeave(reason):
                group.spec.rdzv_handler.announce_leave(reason)
            case Report():
                self._report(self._result.failures)
            case Finish(Outcome.FAILED, reason):
                self._result.state, self._result.reason = WorkerState.FAILED, reason
            case Finish():
                pass
            case _:
                self._write_down(effect)

    def _write_down(self, effect: Effect) -> None:
        """Carry out effects that are recorded in the run's events."""
        failures = self._result.failures
        match effect:
            case Record(outcome, reason):
                self._run_events.attempt_ended(outcome, reason)
            case RecordFailures():
                self._run_events.failed(failures)
            case RecordWorkers(restarts):
                self._record_worker_events(self._result, restarts)
            case RecordVerdict(restarts, reason):
                rank, cause = self._cause(failures)
                self._run_events.verdict(rank, cause, max(len(failures) - 1, 0), restarts=restarts, reason=reason)

    def _needed_again(self) -> str:
        over = self._worker_group.spec.rdzv_handler.round_over()
        return "the other nodes stopped" if over is None else over.reason

    def _pause(self, pause_s: float) -> None:
        """Pause. Signals interrupt it."""
        with Uninterrupted(), SignalWakeUp() as signals:
            select.select([] if signals.fd is None else [signals.fd], [], [], pause_s)

    # Failures

    def _cause(self, failures: Mapping[int, ProcessFailure]) -> tuple[int, ProcessFailure]:
        """The root cause among `failures`, with its global rank."""
        from holdfast.errors.failure import ProcessFailure, in_order

        if failures:
            return in_order(failures)[0]
        first = self._worker_group.workers[0]
        unwell = ProcessFailure(first.local_rank, 0, 1, "")
        unwell.message = UNWELL
        return first.global_rank, unwell

    def _fault(self, result: RunResult) -> Fault:
        """The facts that a restart decision needs."""
        from holdfast.rendezvous.restarts import Fault, failure_signature, hopeless

        _, cause = self._cause(result.failures)
        signature = failure_signature(cause.kind, cause.exception, cause.where, cause.ran_s)
        return Fault(cause.kind, cause.ran_s, signature, hopeless(cause))

    def _report(self, failures: Mapping[int, ProcessFailure]) -> None:
        """Report this node's failures to the other nodes: the root cause, and how many others there are."""
        rank, failure = self._cause(failures)
        others = max(len(failures) - 1, 0)
        self._worker_group.spec.rdzv_handler.report_failure(rank, failure, others, self._node_of_failure())

    def _tell_verdict(self, verdict: Verdict, generation: int | None) -> None:
        """Log why all nodes restart after this generation, in the same words on each. A new node was not part of it."""
        from holdfast.errors.failure import ProcessFailure
        from holdfast.errors.kind import is_of_program
        from holdfast.rendezvous.failure_record import from_record

        cause = verdict.cause
        where = f", at {cause.where}" if cause.where else ""
        because = "" if is_of_program(cause.exception, cause.where) else " because of it"
        victims = f"; {verdict.victims} more failed{because}" if verdict.victims else ""
        count, budget = self._restart_count(), self._worker_group.max_restarts
        # A count above the budget means that a window gave some of it back: "5 of 1" would be nonsense.
        restart = f"restart {count} of {budget}" if count <= budget else f"restart {count}"
        log.warning(
            "%s: rank %s on %s failed: %s%s%s",
            *(restart, cause.rank, cause.host, cause.message, where, victims),
        )
        failure = ProcessFailure.of(from_record(cause))
        self._run_events.verdict(cause.rank, failure, verdict.victims, restarts=True, reason="", generation=generation)

    def _failed_elsewhere(self, failed: JobFailedError, last: RunResult) -> RunResult:
        """The result of a job that failed: every node shows the root cause in the same words."""
        from holdfast.errors.failure import ProcessFailure
        from holdfast.rendezvous.failure_record import from_record

        told = failed.failure
        cause = ProcessFailure.of(from_record(told))
        here = last.failures.get(told.rank)
        terminated = None
        if here is not None and here.pid == told.pid:
            cause.error_file, cause.error_file_data = here.error_file, here.error_file_data
            terminated = last.terminated
        self._run_events.verdict(told.rank, cause, failed.victims, restarts=False, reason=failed.ruling)
        return RunResult(WorkerState.FAILED, failures={told.rank: cause}, terminated=terminated, victims=failed.victims)

    def _exit_barrier(self) -> bool | None:
        """Wait until the workers of every node are done, so that no node removes what others still need.

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
            from holdfast.agent.torch_store_protocol import wait_for_all

            self._take_no_requests()
            wait_for_all(group.store, rank, nodes, self._exit_barrier_timeout)
        return is_over

    # Events and metrics

    def get_event_succeeded(self) -> events.Event:
        """The event of an agent whose job has succeeded."""
        return self._event_writer.agent_event("SUCCEEDED", self._run_time_s(), self._restart_count())

    def get_event_failed(self) -> events.Event:
        """The event of an agent whose job has failed, with the exception being handled."""
        import traceback

        return self._event_writer.agent_event(
            "FAILED", self._run_time_s(), self._restart_count(), traceback.format_exc()
        )

    def record(self, event: events.Event) -> None:
        """Record a caller's event with those of this agent."""
        self._event_writer.record(event)

    def recording(self) -> AbstractContextManager[None]:
        """A context in which the run's events stay open after `run`, so that the caller can add its own."""
        return self._event_writer.holding()

    def _event_log_path(self) -> str | None:
        """The file of the run's events; None if there is no directory for it."""
        return None

    def _run_time_s(self) -> int:
        return int(time.monotonic() - self._began)

    def _record_worker_events(self, result: RunResult, restarts: int) -> None:
        """Record one event for each worker: how it ended."""
        for worker in self._worker_group.workers:
            failure = result.failures.get(worker.global_rank)
            self._event_writer.worker_ended(
                worker,
                self._get_worker_state(worker, result),
                self._run_time_s(),
                restarts,
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
        """Record metrics: whether the job succeeded, and whether it needed restarts."""
        role = self._worker_group.spec.role
        failed, restarted = result.is_failed(), self._restart_count() > 0
        put_metric(f"workers.{role}.run_total", 1)
        for outcome, is_so in (("success", not failed), ("failed", failed)):
            put_metric(f"workers.{role}.run_{outcome}_with_retries", int(is_so and restarted))
            put_metric(f"workers.{role}.run_{outcome}_no_retries", int(is_so and not restarted))
        self._record_flakiness_metric(failed)

    def _record_flakiness_metric(self, is_failed: bool = False) -> None:
        """Record 100 for a job that failed; else the share of its allowed attempts that failed, in per cent."""
        spec = self._worker_group.spec
        flakiness = 100.0 if is_failed else 100.0 - 100.0 * (self._remaining_restarts + 1) / (spec.max_restarts + 1)
        put_metric(f"workers.{spec.role}.flakiness", int(flakiness))


def outline(result: RunResult) -> str:
    """A failed attempt in one line. The workers' stderr and error files have the details."""
    if not result.failures:
        return UNWELL
    from holdfast.errors.failure import in_order
    from holdfast.errors.summary import gist

    (rank, first), *others = in_order(result.failures)
    more = f", and {len(others)} more" if others else ""
    return f"rank {rank} failed: {gist(first).rstrip('.')}{more}"
