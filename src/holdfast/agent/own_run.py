"""The directory of an agent's own run: where it is, how it is found again, and what follows when it is lost."""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.run_directory import RunDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.agent.inspection import Inspection
    from holdfast.agent.run_events import RunEvents
    from holdfast.processes import LogsSpecs


class OwnRun:
    """The run of one agent."""

    def __init__(self, run_events: RunEvents, inspection: Inspection) -> None:
        self._logs_specs: LogsSpecs | None = None
        self._run_events = run_events
        self._inspection = inspection
        self._registered = ""

    @property
    def directory(self) -> RunDirectory | None:
        """The run's directory, from the first attempt on; None if the logs go elsewhere."""
        run = getattr(self._logs_specs, "run_directory", None)
        if isinstance(run, RunDirectory):
            return run
        path = getattr(self._logs_specs, "run_dir", None)
        return RunDirectory(path) if path else None

    def begin(self, logs_specs: LogsSpecs) -> RunDirectory | None:
        """Begin an attempt, whose directory `logs_specs` has made: have the run found by its id, also after a move."""
        self._logs_specs = logs_specs
        run = self.directory
        if run is not None:
            run.on_move = self._moved
        self._register(os.devnull if run is None else run.path)
        return run

    def check(self) -> None:
        """Check the directory before something is recorded that people will look for. Never raises."""
        run = self.directory
        if run is not None and run.on_move is not None:
            with suppress(OSError):  # then the record is lost, and the failure is told all the same
                run.ensure()

    def _moved(self, lost: str) -> None:
        """Record, take requests and be found in the new directory."""
        run = self.directory
        assert run is not None
        self._run_events.continue_in(run.events, lost)
        if self._inspection.requests is not None:
            with suppress(OSError):  # then no requests can be sent, which is no reason to fail
                self._inspection.requests.move(run.requests)
        self._register(run.path)

    def _register(self, place: str) -> None:
        if place != self._registered:
            from holdfast.events.run_index import register

            self._registered = place
            register(place)
