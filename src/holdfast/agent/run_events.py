"""Records one agent's part in a job, as events that a report is made from: attempts, failures, verdicts.

`holdfast.events.schema` has the events. It is imported late: the first event comes before the first worker starts, and
is made and written when the workers run.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.agent.event_writer import EventWriter
    from holdfast.agent.group import WorkerGroup
    from holdfast.errors import ProcessFailure
    from holdfast.errors.failure import Failure
    from holdfast.events.schema import RunEvent, RunStarted

REASON_MAX_CHARS = 1000
"""How much of a reason is kept. The failure has all of it."""

COMMAND_MAX_BYTES = 32 << 10
"""How much of the command is kept, as JSON. With all of the arguments, a line could be longer than readers look at, see
`OPENING_LINE_MAX_BYTES`: a command line may have megabytes.
"""

ARGUMENT_MAX_CHARS = 2_000
"""How much of an argument is kept. As JSON, a character may take 12 bytes."""

NAME_MAX_CHARS = 255
"""How much of a role, or of another name, is kept in the events that tell whose a log is."""

WORKERS_LISTED_MAX = 1_000
"""How many ranks and process ids of this node's workers are listed."""

_RUN, _ATTEMPT = "run", "attempt"
"""The events that begin a log: the start of the run, and that of the present attempt."""


class RunEvents:
    """Records one agent's part in a job. Attempts are counted from 1.

    `agent` is a random id of this start of this agent. Every other start has another id, even with the same run id.
    """

    def __init__(self, event_writer: EventWriter, group: WorkerGroup, agent: str) -> None:
        self._event_writer = event_writer
        self._group = group
        self._agent = agent
        self._began = time.monotonic()
        self._attempt = 0
        self._running_since: float | None = None

    def run_started(self) -> None:
        """Record the start of the agent."""
        self._began = time.monotonic()
        self._event_writer.keep(self._run_started, opening=_RUN)

    def run_time_s(self) -> int:
        """How long the run has lasted, in whole seconds."""
        return int(time.monotonic() - self._began)

    def _run_started(self) -> RunStarted:
        from holdfast.events.schema import RunStarted

        spec = self._group.spec
        command = [spec.entrypoint, *map(str, spec.args)] if isinstance(spec.entrypoint, str) else []
        return RunStarted(
            agent=self._agent,
            version=getattr(sys.modules["holdfast"], "__version__", ""),
            pid=os.getpid(),
            command=_beginning(command or [spec.get_entrypoint_name()]),
            role=spec.role[:NAME_MAX_CHARS],
            nproc=spec.local_world_size,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            backend=spec.rdzv_handler.get_backend()[:NAME_MAX_CHARS],
            max_restarts=spec.max_restarts,
        )

    def attempt_started(self, restart: int, waited_s: float, started_s: float) -> None:
        """Record that the workers of an attempt have started."""
        from holdfast.events.schema import AttemptStarted

        group = self._group
        self._attempt += 1
        self._running_since = time.monotonic()
        listed = group.workers[:WORKERS_LISTED_MAX]
        self._keep(
            AttemptStarted(
                attempt=self._attempt,
                job=group.job[:NAME_MAX_CHARS],
                restart=restart,
                max_restarts=group.max_restarts,
                generation=group.generation,
                master=f"{group.master_addr}:{group.master_port}"[:NAME_MAX_CHARS],
                node=group.group_rank,
                nodes=group.group_world_size or 0,
                world_size=group.workers[0].world_size,
                ranks=tuple(worker.global_rank for worker in listed),
                pids=tuple(worker.id for worker in listed),
                waited_s=round(waited_s, 6),
                started_s=round(started_s, 6),
            ),
            opening=_ATTEMPT,
        )

    def failed(self, failures: Mapping[int, ProcessFailure]) -> None:
        """Record workers of the attempt that failed, by global rank."""
        from holdfast.events.schema import WorkerFailed

        for rank, failure in sorted(failures.items()):
            self._keep(WorkerFailed(attempt=self._attempt, failure=_record(rank, failure)))

    def late_crash(self, rank: int, crash: ProcessFailure, text: str) -> None:
        """Record that a worker crashed after its program ended well. `text` is for people."""
        from holdfast.events.schema import LateCrash

        self._keep(LateCrash(attempt=self._attempt, text=text[:REASON_MAX_CHARS], crash=_record(rank, crash)))

    def attempt_ended(self, outcome: str, reason: str = "") -> None:
        """Record that an attempt succeeded, failed, or was stopped. Only the first call for an attempt counts."""
        if self._running_since is None:
            return
        from holdfast.events.schema import AttemptEnded

        ran_s = time.monotonic() - self._running_since
        self._running_since = None
        reason = reason[:REASON_MAX_CHARS]
        self._keep(AttemptEnded(attempt=self._attempt, outcome=outcome, reason=reason, ran_s=round(ran_s, 6)))
        self._event_writer.drop_opening(_ATTEMPT)

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
        """Record the cause of the job's last failed attempt, on any node, and what follows."""
        from holdfast.events.schema import VerdictReached

        self._keep(
            VerdictReached(
                attempt=self._attempt,
                generation=generation,
                cause=_record(rank, cause),
                victims=victims,
                decision="restart" if restarts else "stop",
                reason=reason[:REASON_MAX_CHARS],
            )
        )

    def stacks(self, reason: str, file: str, outliers: Sequence[int], where: Sequence[str] = ()) -> None:
        """Record that the stacks of workers were collected. `where` has a line for each group of ranks."""
        from holdfast.events.schema import StacksCollected

        self._keep(
            StacksCollected(
                attempt=self._attempt,
                reason=reason[:REASON_MAX_CHARS],
                file=file,
                outliers=tuple(outliers),
                where=tuple(where),
            )
        )

    def warning(self, text: str, rank: int | None = None) -> None:
        """Record a warning that did not end the attempt. It is about a worker if `rank` is given."""
        from holdfast.events.schema import Warned

        self._keep(Warned(attempt=self._attempt, rank=rank, text=text[:REASON_MAX_CHARS]))

    def run_ended(self, outcome: str, reason: str, restarts: int) -> None:
        """Record that the agent's part of the run is over."""
        from holdfast.events.schema import RunEnded

        self.attempt_ended("stopped", reason)
        self._keep(RunEnded(outcome=outcome, reason=reason[:REASON_MAX_CHARS], restarts=restarts))

    def continue_in(self, path: str, lost: str) -> None:
        """Continue in another event log, because the directory `lost` was removed or replaced."""
        self._event_writer.move(path)
        self.warning(f"{lost!r} was removed or replaced while the run used it; what it had recorded until then is lost")

    def _keep(self, event: RunEvent, opening: str = "") -> None:
        self._event_writer.keep(lambda: event, opening=opening)


def _record(rank: int, failure: ProcessFailure) -> Failure:
    return failure.record.replace(rank=rank, ran_s=round(failure.ran_s, 6))


def _beginning(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that fit into `COMMAND_MAX_BYTES`, and how many do not."""
    import json

    from holdfast.errors.text import clipped

    kept: list[str] = []
    left = COMMAND_MAX_BYTES
    for word in command:
        shown = clipped(word, ARGUMENT_MAX_CHARS)
        left -= len(json.dumps(shown)) + len(", ")
        if left < 0:
            return (*kept, f"... {len(command) - len(kept)} more arguments left out ...")
        kept.append(shown)
    return tuple(kept)
