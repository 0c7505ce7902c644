"""The state of a group of workers, in the words that torch has for it. `core` has the agent's own phases."""

from __future__ import annotations

from enum import Enum


class WorkerState(str, Enum):  # noqa: UP042 - str() of a member shows its class, which log readers know
    """The state of the workers of a group, which share one: all are healthy, or the group is not."""

    UNKNOWN = "UNKNOWN"
    """Nobody can say: a bug, or a subclass that lost track."""

    INIT = "INIT"
    """Not started, or about to be."""

    HEALTHY = "HEALTHY"
    """Running."""

    UNHEALTHY = "UNHEALTHY"
    """Running, or partly ended, and not well."""

    STOPPED = "STOPPED"
    """Ended by the agent, to be started again or not at all."""

    SUCCEEDED = "SUCCEEDED"
    """All exited with 0."""

    FAILED = "FAILED"
    """One or more failed."""

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether processes of a group in this state may be alive."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)
