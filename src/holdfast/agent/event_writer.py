"""The agent's events, written to the chosen handler and to a file in the run's directory.

The first events come before the first worker starts, and must not delay it. So they are held with their true times, and
written when the workers run.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

from holdfast.agent.state import WorkerState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from holdfast.agent.group import RunResult, Worker, WorkerGroup
    from holdfast.events import Event, EventLog
    from holdfast.events.schema import RecordedEvent, RunEvent

_PREFIX = "torchelastic.worker.status."


class EventWriter:
    """The events of one agent."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self._held: list[Callable[[], Event | RecordedEvent]] = []
        self._log: EventLog | None = None
        self._holders = 0
        self._opening: dict[str, Callable[[], RecordedEvent]] = {}

    def open(self, path: str | None) -> None:
        """Start writing events: to the handler and, if `path` is given, to that file."""
        if self._log is None:
            from holdfast.events import EventLog

            self._log = EventLog(path, self._group.spec.event_log_handler)
            for make in self._held:
                self._log.write(make())
            self._held.clear()

    def move(self, path: str) -> None:
        """Continue in another file, because the first one is lost. It begins with the events that begin a file."""
        if self._log is not None:
            self._log.move(path, [make() for make in self._opening.values()])

    def hold(self) -> None:
        """Keep the file open until `let_go` was called as often: by a run, and by a caller who adds an event."""
        self._holders += 1

    def let_go(self) -> None:
        """Undo one `hold`. The last one writes all events and closes the file."""
        self._holders -= 1
        if not self._holders:
            self.open(None)
            assert self._log is not None
            self._log.close()

    @contextmanager
    def holding(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def record(self, event: Event) -> None:
        """Record a caller's event, which may come after the run."""
        with self.holding():
            if self._log is None:
                self._held.append(lambda: event)
            else:
                self._log.write(event)

    def keep(self, make: Callable[[], RunEvent], *, opening: str = "") -> None:
        """Record an event of the run, in the run's file only. `make` is called when the event is written.

        If `opening` is given, another file begins with this event, too, until one with the same `opening` replaces it.
        """
        now, monotonic, group_rank = time.time(), time.monotonic(), self._group.group_rank

        def recorded() -> RecordedEvent:
            from holdfast.events.schema import RecordedEvent

            return RecordedEvent(
                make(),
                timestamp=now,
                monotonic=monotonic,
                run_id=self._group.spec.rdzv_handler.get_run_id(),
                hostname=os.uname().nodename,
                group_rank=group_rank,
            )

        if opening:
            self._opening[opening] = recorded
        if self._log is None:
            self._held.append(recorded)
        else:
            self._log.write(recorded())

    def drop_opening(self, opening: str) -> None:
        """No other file begins with this event any more."""
        self._opening.pop(opening, None)

    @contextmanager
    def timed(self, state: str) -> Iterator[None]:
        """Record an event with the duration of the block, even if it fails."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._tell(state, "AGENT", duration_ms=(time.monotonic() - began) * 1000)

    def worker_ended(self, worker: Worker, state: str, run_time_s: int, restarts: int, result: RunResult) -> None:
        """Record how a worker ended, in a job that was restarted so often."""
        failure = result.failures.get(worker.global_rank)
        self._tell(
            state,
            "WORKER",
            worker=worker,
            run_time_s=run_time_s,
            restarts=restarts,
            raw_error=None if failure is None else failure.message,
            exit_code=result.terminated.get(worker.global_rank, 0) if failure is None else failure.exitcode,
        )

    def watchdog(self, name: str, worker_id: Any, scopes: str) -> None:
        """Record an event of the watchdog: it started, a timer expired, it ended a worker, it stopped."""
        self._tell("RUNNING", "AGENT", name=name, worker_id=worker_id, scopes=scopes)

    def agent_event(self, state: str, run_time_s: int, restarts: int, raw_error: str | None = None) -> Event:
        return self._event(state, "AGENT", time.time(), run_time_s=run_time_s, restarts=restarts, raw_error=raw_error)

    def _tell(self, state: str, source: str, **details: Any) -> None:
        now, facts = time.time(), self._facts()
        if self._log is None:
            self._held.append(lambda: self._event(state, source, now, facts=facts, **details))
        else:
            self._log.write(self._event(state, source, now, facts=facts, **details))

    def _facts(self) -> dict[str, Any]:
        """Values that may have changed when the event is written."""
        return {"group_rank": self._group.group_rank, "group_world_size": self._group.group_world_size}

    def _event(
        self,
        state: str,
        source: str,
        timestamp: float,
        *,
        facts: dict[str, Any] | None = None,
        name: str | None = None,
        worker: Worker | None = None,
        worker_id: Any = None,
        scopes: str | None = None,
        run_time_s: int | None = None,
        restarts: int | None = None,
        raw_error: str | None = None,
        exit_code: int | None = None,
        duration_ms: float | None = None,
    ) -> Event:
        import json

        from holdfast.events import Event, EventSource

        spec = self._group.spec
        facts = self._facts() if facts is None else facts
        more: dict[str, Any] = {
            "group_world_size": facts["group_world_size"],
            "entry_point": spec.get_entrypoint_name(),
        }
        if worker is not None:
            worker_id = worker.id
            # Readers of these events expect each value in a list.
            more["local_rank"] = [worker.local_rank]
            more["role_rank"] = [worker.role_rank]
            more["role_world_size"] = [worker.role_world_size]
            more["exit_code"] = [exit_code]
            more["worker_pid"] = [worker.id]
        if scopes is not None:
            more["scopes"] = scopes
        return Event(
            name=_PREFIX + state if name is None else name,
            source=EventSource(source),
            timestamp=timestamp,
            metadata={
                "run_id": spec.rdzv_handler.get_run_id(),
                "global_rank": None if worker is None else worker.global_rank,
                "group_rank": facts["group_rank"],
                "worker_id": None if worker_id is None else str(worker_id),
                "role": spec.role,
                "hostname": os.uname().nodename,
                "state": state,
                "total_run_time": run_time_s,
                "rdzv_backend": spec.rdzv_handler.get_backend(),
                "raw_error": raw_error,
                "metadata": json.dumps(more),  # torch's events have JSON in a string here, and its readers expect it
                "agent_restarts": restarts,
                "duration_ms": duration_ms,
            },
        )


def worker_state(worker: Worker, result: RunResult) -> str:
    """The state in a worker's last event: how it ended."""
    if worker.global_rank in result.failures:
        return "FAILED"
    return "SUCCEEDED" if result.state is WorkerState.SUCCEEDED else "TERMINATED"
