"""The interface of agents, and the hooks through which a `SimpleElasticAgent` reaches its workers."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from contextlib import nullcontext

from holdfast.agent.wait import Wait
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from holdfast.agent.group import RunResult, WorkerGroup
    from holdfast.errors import ProcessFailure


class ElasticAgent(ABC):
    """Runs the workers of one node and keeps them running."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to their end: success, or a failure with no restart left."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The group of this agent's workers. Callers must not change it."""


class WorkerHooks(ElasticAgent):
    """The hooks of a subclass: four that it must have, with torch's names, and others whose defaults do little."""

    @abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the workers, and return an id for each local rank."""

    def _starting(self) -> AbstractContextManager[object]:
        """The context in which the workers of an attempt are started, until the agent watches them."""
        return nullcontext()

    @abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop all workers of this node. They may be started again."""

    @abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Return the state of the workers, without waiting."""

    @abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        """Stop everything for good."""

    def _wait_for_change(self, worker_group: WorkerGroup) -> None:
        """Wait until `_monitor_workers` may have news. Signals interrupt it."""
        wait = Wait()
        wait.at_most(worker_group.spec.monitor_interval)
        wait.run()

    def _ask_to_stop(self, worker_group: WorkerGroup, reason: str) -> float | None:
        """Ask the workers to end by themselves, and return their deadline; None if there is no way to ask."""
        del worker_group, reason
        return None

    def _failures_at_the_end(self, worker_group: WorkerGroup) -> dict[int, ProcessFailure]:
        """The workers, by global rank, that had failed by themselves when they were stopped."""
        del worker_group
        return {}

    def _look_before_stop(self, reason: str) -> None:
        """Collect the workers' stacks, if that takes no time: they will be stopped before their work is done."""

    def _serve_store(self, worker_group: WorkerGroup) -> None:
        """Start serving the workers' store, if this node hosts it. Clients may wait until then."""
        if worker_group.hosting is not None and worker_group.hosting.store is not None:
            worker_group.hosting.store.start()

    def _before_exit_barrier(self) -> None:
        """Called when the workers have succeeded, before this node waits for the others."""

    def _take_no_requests(self) -> None:
        """Stop taking requests: this node now waits in a way that cannot answer them."""

    def _node_of_failure(self) -> int | None:
        """The rank of the node to blame, if it is another one."""
        return None

    def _event_log_path(self) -> str | None:
        """The file of the run's events; None if there is no directory for it."""
        return None
