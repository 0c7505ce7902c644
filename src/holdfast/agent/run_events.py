"""The events that a run's report is made from: attempts, failures, verdicts.

They go only to the file in the run's directory. An event handler made for torch's events gets torch's events.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from holdfast.agent.event_writer import EventWriter
    from holdfast.agent.group import WorkerGroup
    from holdfast.errors import ProcessFailure

REASON_MAX_CHARS = 1000
"""How much of a reason is kept. The failure has all of it."""


class RunEvents:
    """Records one agent's part in a job. Attempts are counted from 1.

    `agent` is a random id of this start of this agent. Every other start has another id, even with the same run id.
    """

    def __init__(self, event_writer: EventWriter, group: WorkerGroup, agent: str) -> None:
        self._event_writer = event_writer
        self._group = group
        self._agent = agent
        self._attempt = 0
        self._running_since: float | None = None

    def run_started(self) -> None:
        """The agent starts. This is the first event of a run."""
        spec = self._group.spec
        command = [spec.entrypoint, *map(str, spec.args)] if isinstance(spec.entrypoint, str) else []
        self._tell(
            "run.started",
            agent=self._agent,
            version=getattr(sys.modules["holdfast"], "__version__", ""),
            pid=os.getpid(),
            command=command or [spec.get_entrypoint_name()],
            role=spec.role,
            nproc=spec.local_world_size,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            backend=spec.rdzv_handler.get_backend(),
            max_restarts=spec.max_restarts,
        )

    def attempt_started(self, restart: int, waited_s: float, started_s: float) -> None:
        """The workers of an attempt have started, with the seconds spent in the rendezvous and on their start."""
        group = self._group
        self._attempt += 1
        self._running_since = time.monotonic()
        self._tell(
            "attempt.started",
            attempt=self._attempt,
            job=group.job,
            restart=restart,
            max_restarts=group.max_restarts,
            generation=group.generation,
            master=f"{group.master_addr}:{group.master_port}",
            node=group.group_rank,
            nodes=group.group_world_size,
            world_size=group.workers[0].world_size,
            ranks=[worker.global_rank for worker in group.workers],
            pids=[worker.id for worker in group.workers],
            waited_s=round(waited_s, 6),
            started_s=round(started_s, 6),
        )

    def failed(self, failures: Mapping[int, ProcessFailure]) -> None:
        """Workers of the attempt failed, by global rank: one event for each."""
        for rank, failure in sorted(failures.items()):
            self._tell("failure", attempt=self._attempt, **_facts(rank, failure))

    def late_crash(self, rank: int, crash: ProcessFailure, text: str) -> None:
        """A worker crashed after its program ended well. It counts as a success. `text` is for people."""
        self._tell("warning", attempt=self._attempt, text=text[:REASON_MAX_CHARS], **_facts(rank, crash))

    def attempt_ended(self, outcome: str, reason: str = "") -> None:
        """An attempt succeeded, failed, or was stopped. Only the first call for an attempt counts."""
        if self._running_since is None:
            return
        ran_s = time.monotonic() - self._running_since
        self._running_since = None
        self._tell(
            "attempt.ended",
            attempt=self._attempt,
            outcome=outcome,
            reason=reason[:REASON_MAX_CHARS],
            ran_s=round(ran_s, 6),
        )

    def verdict(
        self,
        rank: int,
        cause: ProcessFailure,
        victims: int,
        *,
        restarts: bool,
        reason: str,
        generation: int | None = None,
    ) -> None:
        """The cause of the job's last failed attempt, on any node, and what follows.

        If `generation` is given and is not the attempt's, this node was not part of the generation that failed.
        """
        self._tell(
            "verdict",
            attempt=self._attempt,
            generation=generation,
            cause=_facts(rank, cause),
            victims=victims,
            decision="restart" if restarts else "stop",
            reason=reason[:REASON_MAX_CHARS],
        )

    def stacks(self, reason: str, file: str, outliers: Sequence[int], where: Sequence[str] = ()) -> None:
        """The stacks of workers were collected: at a hang, at a user's request, or before a stop after a failure.

        `where` has a line for each group of ranks: where it was.
        """
        self._tell(
            "stacks",
            attempt=self._attempt,
            reason=reason[:REASON_MAX_CHARS],
            file=file,
            outliers=list(outliers),
            where=list(where),
        )

    def warning(self, text: str, rank: int | None = None) -> None:
        """A warning that did not end the attempt. It is about a worker if `rank` is given."""
        self._tell("warning", attempt=self._attempt, rank=rank, text=text[:REASON_MAX_CHARS])

    def run_ended(self, outcome: str, reason: str, restarts: int) -> None:
        """The agent's part of the run is over. This is the last event of a run, unless the agent was killed."""
        self.attempt_ended("stopped", reason)
        self._tell("run.ended", outcome=outcome, reason=reason[:REASON_MAX_CHARS], restarts=restarts)

    def _tell(self, name: str, **details: Any) -> None:
        self._event_writer.keep(f"holdfast.{name}", details)


def _facts(rank: int, failure: ProcessFailure) -> dict[str, Any]:
    """The fields of a failure in an event."""
    return failure.record.replace(rank=rank, ran_s=round(failure.ran_s, 6)).facts()
