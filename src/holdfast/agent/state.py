"""The states of a worker group, and what leads from one to the next.

```
            rendezvous done        all exited with 0
   INIT ─────────────────► HEALTHY ────────────────► SUCCEEDED
    ▲                        │ │
    │ restart                │ │ one failed     no restart left
    │                        │ └───────────► UNHEALTHY ─────────► FAILED
    └──────── STOPPED ◄──────┴──────────────────┘
                       stopped on purpose
```

A group that SUCCEEDED is STOPPED, and so starts again, when the job cannot end yet because another node failed. A group
in INIT may find that the job has FAILED on another node.
"""

from __future__ import annotations

from enum import Enum, StrEnum


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


class Step(StrEnum):
    """What happens to a group."""

    START = "start"
    FAIL = "fail"
    BECOME_UNHEALTHY = "become unhealthy"
    SUCCEED = "succeed"
    STOP = "stop"
    RESTART = "restart"
    GIVE_UP = "give up"


_S = WorkerState
TRANSITIONS: dict[tuple[WorkerState, Step], WorkerState] = {
    (_S.INIT, Step.START): _S.HEALTHY,
    (_S.STOPPED, Step.RESTART): _S.INIT,
    (_S.HEALTHY, Step.SUCCEED): _S.SUCCEEDED,
    (_S.HEALTHY, Step.FAIL): _S.UNHEALTHY,
    (_S.HEALTHY, Step.BECOME_UNHEALTHY): _S.UNHEALTHY,
    (_S.INIT, Step.STOP): _S.STOPPED,
    (_S.HEALTHY, Step.STOP): _S.STOPPED,
    (_S.UNHEALTHY, Step.STOP): _S.STOPPED,
    (_S.STOPPED, Step.STOP): _S.STOPPED,
    (_S.SUCCEEDED, Step.STOP): _S.STOPPED,
    (_S.STOPPED, Step.GIVE_UP): _S.FAILED,
    (_S.INIT, Step.GIVE_UP): _S.FAILED,
}
"""Every way that leads from a state. A pair that is missing is a bug."""


def after(state: WorkerState, step: Step) -> WorkerState:
    """The state of a group in `state` after `step`."""
    try:
        return TRANSITIONS[state, step]
    except KeyError:
        raise AssertionError(f"a group that is {state.value} cannot {step.value}") from None
