"""The model of the agent's core: phases and state, the events that go in, the effects that come out."""

from __future__ import annotations

from enum import StrEnum

from holdfast.agent.state import WorkerState
from holdfast.record_types import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from holdfast.rendezvous.restarts import Fault, Past
    from holdfast.settings import RestartLimits


class Phase(StrEnum):
    """The phase of an agent."""

    MEETING = "meeting"
    """The agent meets the other nodes and starts its workers."""

    RUNNING = "running"
    """The workers run."""

    FAILING = "failing"
    """A worker has failed, and the others are being stopped."""

    DRAINING = "draining"
    """The workers were asked to end by themselves."""

    PAUSED = "paused"
    """No workers run. The next attempt begins after a pause."""

    WAITING = "waiting"
    """All workers of this node have succeeded; those of other nodes have not yet."""

    ENDED = "ended"
    """The agent has done its part."""


class Outcome(StrEnum):
    """How an agent's part of a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CLOSED = "closed"


class AgentState(Frozen):
    """Everything that decisions depend on.

    Attributes:
        limits: when a failed attempt is restarted.
        is_shared: whether the nodes of the job share one budget of restarts, which the rendezvous counts.
        phase: the agent's phase.
        spent: the restarts that the budget has paid for.
        forgiven: the restarts that a window gave back.
        past: what restart decisions remember of earlier failures.
        is_recorded: whether the end of this attempt's workers is in the events.
        leaving: the signal that asked this node to leave.
        until: when a pause ends, or the deadline of workers that were asked to end by themselves.
        outcome: how the agent's part ended.
        reason: why it ended; while workers drain, why they were asked to.
    """

    limits: RestartLimits
    is_shared: bool = False
    past: Past | None = None
    phase: Phase = Phase.MEETING
    spent: int = 0
    forgiven: int = 0
    is_recorded: bool = False
    leaving: str = ""
    until: float | None = None
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def max_restarts(self) -> int:
        """The restarts that the user allows."""
        return self.limits.max_restarts

    @property
    def restarts(self) -> int:
        """All restarts of the job. The number only rises, even if a window gives the budget back."""
        return self.forgiven + self.spent

    @property
    def remaining(self) -> int:
        """The restarts that the budget has left."""
        return self.max_restarts - self.spent

    @property
    def worker_state(self) -> WorkerState:
        """The state of the workers in torch's words."""
        if self.phase is Phase.ENDED:
            return _AT_THE_END[self.outcome or Outcome.CLOSED]
        return _WORKERS[self.phase]


_WORKERS = {
    Phase.MEETING: WorkerState.INIT,
    Phase.RUNNING: WorkerState.HEALTHY,
    Phase.FAILING: WorkerState.UNHEALTHY,
    Phase.DRAINING: WorkerState.HEALTHY,
    Phase.PAUSED: WorkerState.STOPPED,
    Phase.WAITING: WorkerState.SUCCEEDED,
}
_AT_THE_END = {
    Outcome.SUCCEEDED: WorkerState.SUCCEEDED,
    Outcome.FAILED: WorkerState.FAILED,
    Outcome.INTERRUPTED: WorkerState.STOPPED,
    Outcome.CLOSED: WorkerState.STOPPED,
}


# Events


class Met(Frozen):
    """The nodes have met. `restarts` is the job's count; None if this node counts for itself."""

    restarts: int | None = None


class Started(Frozen):
    """The workers of this node run."""


class WorkerExited(Frozen):
    """A worker has failed, and the others are being stopped."""


class SetSucceeded(Frozen):
    """All workers of this node have ended well."""


class SetFailed(Frozen):
    """Workers of this node have failed, and the others have been stopped.

    `text` is the failure in one line. `is_stuck` means that a worker is stuck in the kernel and cannot be killed, so
    that no restart can help; the others may still run then.
    """

    fault: Fault
    text: str
    is_stuck: bool = False


class HangFound(Frozen):
    """Workers make no progress, here or on another node. They still run."""

    fault: Fault
    text: str


class SetFenced(Frozen):
    """The keeper killed the workers because this node did not renew its lease in time."""


class Stopped(Frozen):
    """No worker of this node runs any more. The next attempt is about to begin."""


class RoundOver(Frozen):
    """The other nodes want to meet again, or the job has ended. With `may_finish`, the workers may be drained first."""

    reason: str
    may_finish: bool = False


class Asked(Frozen):
    """The workers were asked to end by themselves, and have until `until`."""

    until: float


class DeadlinePassed(Frozen):
    """A pause is over, or the deadline of workers that were asked to end by themselves has passed."""


class BarrierLeft(Frozen):
    """The wait for the other nodes is over. `reason` says why this node's workers are needed again, if they are."""

    reason: str = ""


class JobFailed(Frozen):
    """The rendezvous has judged the last attempt: the job has failed. `reason` says why there is no restart."""

    reason: str


class NotNeeded(Frozen):
    """The job has succeeded, or has enough nodes without this one."""

    reason: str


class Signalled(Frozen):
    """A signal of that name asked this agent to end. `text` describes it."""

    name: str
    text: str


# Effects


class StartSet(Frozen):
    """Meet the other nodes and start the workers."""


class RestartSet(Frozen):
    """Stop the remaining workers, meet the other nodes again, and start new workers."""


class StopSet(Frozen):
    """Stop the workers."""


class AskToStop(Frozen):
    """Ask the workers to end by themselves. The answer is `Asked`, or `DeadlinePassed` if none of them listens."""

    reason: str


class LookBeforeStop(Frozen):
    """Collect the workers' stacks, because they are about to be stopped."""

    reason: str


class AnnounceLeave(Frozen):
    """Tell the other nodes that this one leaves."""

    reason: str


class Report(Frozen):
    """Report this node's failures to the other nodes."""


class Record(Frozen):
    """Record in the run's events how the attempt ended."""

    outcome: str
    reason: str = ""


class RecordFailures(Frozen):
    """Write an event for each failure."""


class RecordWorkers(Frozen):
    """Write an event for each worker: how it ended, and the job's restart count."""

    restarts: int


class RecordVerdict(Frozen):
    """Record this node's verdict in the run's events."""

    restarts: bool
    reason: str


class Say(Frozen):
    """Log a line, as a warning unless `is_info`."""

    text: str
    is_info: bool = False


class PauseUntil(Frozen):
    """Pause until `at`. The answer is `DeadlinePassed`."""

    at: float


class WaitForOthers(Frozen):
    """Wait until the workers of all nodes are done. The answer is `BarrierLeft`."""


class Finish(Frozen):
    """The agent's part is over."""

    outcome: Outcome
    reason: str = ""


if TYPE_CHECKING:
    Event: TypeAlias = (
        Met
        | Started
        | WorkerExited
        | SetSucceeded
        | SetFailed
        | HangFound
        | SetFenced
        | Stopped
        | RoundOver
        | Asked
        | DeadlinePassed
        | BarrierLeft
        | JobFailed
        | NotNeeded
        | Signalled
    )
    Effect: TypeAlias = (
        StartSet
        | RestartSet
        | StopSet
        | AskToStop
        | LookBeforeStop
        | AnnounceLeave
        | Report
        | Record
        | RecordFailures
        | RecordWorkers
        | RecordVerdict
        | Say
        | PauseUntil
        | WaitForOthers
        | Finish
    )
    Next: TypeAlias = tuple[AgentState, tuple[Effect, ...]]
