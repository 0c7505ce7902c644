"""The shell around the agent's decisions (`core`).

It turns what happens to the workers of one node into events, and has the effects carried out (`effects`). Subclasses
start, watch and stop the workers (`hooks`).
"""

from __future__ import annotations

import os
import signal
import time

from holdfast.agent.core import ended, step
from holdfast.agent.core_model import (
    AgentState,
    DeadlinePassed,
    JobFailed,
    Met,
    NotNeeded,
    Outcome,
    RoundOver,
    SetFailed,
    SetFenced,
    SetSucceeded,
    Signalled,
    Started,
    StartSet,
    Stopped,
)
from holdfast.agent.effects import carry_out
from holdfast.agent.event_writer import EventWriter, worker_state
from holdfast.agent.group import RunResult, Worker, WorkerGroup
from holdfast.agent.hooks import WorkerHooks
from holdfast.agent.ranks import assign_ranks
from holdfast.agent.run_events import RunEvents
from holdfast.agent.run_metrics import put_flakiness, put_look, put_outcome
from holdfast.agent.state import WorkerState
from holdfast.logger import get_logger
from holdfast.metrics import prof
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import Held, SignalException
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
log = get_logger(__name__)


class SimpleElasticAgent(WorkerHooks):
    """The base of an agent for one role.

    A subclass starts, stops, monitors and shuts down workers (the four abstract methods of `WorkerHooks`). It may
    override `_wait_for_change` to wait for notifications; by default the agent looks every `monitor_interval`.
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
        self._event_writer = EventWriter(self._worker_group)
        self._run_events = RunEvents(self._event_writer, self._worker_group, os.urandom(8).hex())
        self._is_interrupted = False
        self._has_taken_part = True
        self._waited_s = 0.0

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        del role
        return self._worker_group

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
            from holdfast.agent.verdicts import restart_line
            from holdfast.errors.failure import ProcessFailure
            from holdfast.rendezvous.failure_record import from_record

            # A node that is new was not part of the failed generation, and logs the verdict all the same.
            verdict, cause = info.after, ProcessFailure.of(from_record(info.after.cause))
            log.warning("%s", restart_line(verdict, self._restart_count(), worker_group.max_restarts))
            self._run_events.verdict(
                *(verdict.cause.rank, cause, verdict.victims),
                restarts=True,
                reason="",
                generation=verdict.generation or None,
            )
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
        with self._starting():
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
                event = carry_out(self, effects) or self._next_event()
                with Held():  # a signal between two events is an event as well
                    effects = self._hear(event)
                continue
            except SignalException as received:
                interrupted, self._is_interrupted = received, True
                event = Signalled(received.sigval.name, str(received))
            except JobFailedError as failed:
                from holdfast.agent.verdicts import failed_elsewhere

                self._result = failed_elsewhere(failed, self._result)
                rank, victims = failed.failure.rank, failed.victims
                cause = self._result.failures[rank]
                self._run_events.verdict(rank, cause, victims, restarts=False, reason=failed.ruling)
                event = JobFailed(failed.ruling)
            except RendezvousGracefulExitError as reason:
                self._result = RunResult(WorkerState.SUCCEEDED)
                self._has_taken_part = False
                event = NotNeeded(str(reason))
            with Held():
                effects = self._hear(event)
        carry_out(self, effects)
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
        while True:
            self._wait_for_change(group)
            event = self._look(group)
            put_look(group.spec.role, self._result.state, self._remaining_restarts)
            if event is not None:
                return event

    def _look(self, worker_group: WorkerGroup) -> Event | None:
        """Check the workers and the rendezvous for an event."""
        result = self._result = self._monitor_workers(worker_group)
        match result.state:
            case WorkerState.SUCCEEDED:
                return SetSucceeded()
            case WorkerState.FAILED | WorkerState.UNHEALTHY:
                from holdfast.agent.verdicts import fault_of, outline

                return SetFailed(fault_of(result, worker_group.workers[0]), outline(result))
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

    def _report(self, failures: Mapping[int, ProcessFailure]) -> None:
        """Report this node's failures to the other nodes: the root cause, and how many others there are."""
        from holdfast.agent.verdicts import cause_of

        rank, failure = cause_of(failures, self._worker_group.workers[0])
        others = max(len(failures) - 1, 0)
        self._worker_group.spec.rdzv_handler.report_failure(rank, failure, others, self._node_of_failure())

    def _exit_barrier(self) -> bool | None:
        """Wait until the workers of every node are done, so that no node removes what others still need.

        False if the job cannot end yet, and the workers are needed again.
        """
        group = self._worker_group
        self._before_exit_barrier()
        try:
            is_over = group.spec.rdzv_handler.wait_for_end(self._exit_barrier_timeout)
        except TimeoutError as missing:
            serves = group.group_rank == 0 and group.hosting is not None and group.hosting.store is not None
            effect = "; this node serves the workers' store, so workers that still use it will fail" if serves else ""
            log.warning("left the exit barrier: %s%s", missing, effect)
            return True
        rank, nodes = group.group_rank or 0, group.group_world_size or 1
        if is_over is None and group.store is not None and nodes > 1:
            from holdfast.agent.torch_store_protocol import wait_for_all

            self._take_no_requests()
            wait_for_all(group.store, rank, nodes, self._exit_barrier_timeout)
        return is_over

    # Events and metrics

    def get_event_succeeded(self) -> events.Event:
        """The event of an agent whose job has succeeded."""
        run_time_s = self._run_events.run_time_s()
        return self._event_writer.agent_event("SUCCEEDED", run_time_s, self._restart_count())

    def get_event_failed(self) -> events.Event:
        """The event of an agent whose job has failed, with the exception being handled."""
        import traceback

        run_time_s = self._run_events.run_time_s()
        return self._event_writer.agent_event("FAILED", run_time_s, self._restart_count(), traceback.format_exc())

    def record(self, event: events.Event) -> None:
        """Record a caller's event with those of this agent."""
        self._event_writer.record(event)

    def record_duration(self, state: str) -> AbstractContextManager[None]:
        """A context that records an event with this state and its duration, even if it fails."""
        return self._event_writer.timed(state)

    def recording(self) -> AbstractContextManager[None]:
        """A context in which the run's events stay open after `run`, so that the caller can add its own."""
        return self._event_writer.holding()

    def _record_worker_events(self, result: RunResult, restarts: int | None = None) -> None:
        """Record one event for each worker: how it ended, and the job's restart count at that time."""
        restarts = self._restart_count() if restarts is None else restarts
        for worker in self._worker_group.workers:
            state = self._get_worker_state(worker, result)
            self._event_writer.worker_ended(worker, state, self._run_events.run_time_s(), restarts, result)

    _get_worker_state = staticmethod(worker_state)

    def _record_metrics(self, result: RunResult) -> None:
        """Record metrics: whether the job succeeded, and whether it needed restarts."""
        role, is_failed = self._worker_group.spec.role, result.is_failed()
        put_outcome(role, is_failed=is_failed, has_restarted=self._restart_count() > 0)
        self._record_flakiness_metric(is_failed)

    def _record_flakiness_metric(self, is_failed: bool = False) -> None:
        spec = self._worker_group.spec
        put_flakiness(
            spec.role,
            is_failed=is_failed,
            remaining_restarts=self._remaining_restarts,
            max_restarts=spec.max_restarts,
        )
