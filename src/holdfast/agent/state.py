"""The state of a group of workers, in torch's terms. `core` has the agent's own phases."""

from __future__ import annotations

from enum import Enum


class WorkerState(str, Enum):  # noqa: UP042 - str() of a member includes its class, as log readers expect
    """The common state of a group's workers: all are healthy, or the group is not."""

    UNKNOWN = "UNKNOWN"
    """Unknown: a bug, or a subclass that lost track."""

    INIT = "INIT"
    """Not started, or about to be."""

    HEALTHY = "HEALTHY"
    """Running."""

    UNHEALTHY = "UNHEALTHY"
    """Running or partly ended, and not healthy."""

    STOPPED = "STOPPED"
    """Stopped by the agent, to be restarted or for good."""

    SUCCEEDED = "SUCCEEDED"
    """All exited with 0."""

    FAILED = "FAILED"
    """One or more failed."""

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether processes of a group in this state may be alive."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)
