"""What an agent finds out about a failed worker beyond its exit, and how that completes the failure.

A `Failure` is diagnosed when the exit arrives, and is frozen. `complete` makes a new one; nothing else amends it.
"""

from __future__ import annotations

from holdfast.record_types import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.agent.group import RunResult, WorkerGroup
    from holdfast.agent.inspection import Inspection
    from holdfast.agent.survivors import Survivors
    from holdfast.agent.timers import Timers
    from holdfast.errors import ProcessFailure
    from holdfast.errors.failure import Failure


class Findings(Frozen):
    """What an agent knows about a failed worker beyond its exit and the files that it left.

    Attributes:
        timer: the section whose timer expired and made the watchdog end the worker; None if no timer expired.
        place: the line of the user's code at which the timer expired.
        accusation: which workers were not waiting, if this worker waited for its peers in vain; "" if unknown.
        survivors: where the other workers were when they were stopped because of this failure, one line for each place.
    """

    timer: str | None = None
    place: str = ""
    accusation: str = ""
    survivors: tuple[str, ...] = ()


def complete(failure: Failure, findings: Findings) -> Failure:
    """The failure with all findings. A failure that the worker recorded itself keeps its kind and its message."""
    if findings.timer is not None and not failure.error_file:
        from holdfast.errors.kind import FailureKind

        failure = failure.replace(
            message=f"a timer expired in {findings.timer}; the watchdog ended the worker",
            kind=FailureKind.TIMEOUT,
            where=failure.where or findings.place,
        )
    if findings.accusation:
        failure = failure.replace(message=f"{failure.message.rstrip()}\n{findings.accusation}")
    if findings.survivors:
        failure = failure.replace(survivors=findings.survivors)
    return failure


class Investigation:
    """Finds out about the failures of one attempt: from its timers, its survivors, and other nodes."""

    def __init__(self, group: WorkerGroup, timers: Timers, survivors: Survivors, inspection: Inspection) -> None:
        self._group = group
        self._timers = timers
        self._survivors = survivors
        self._inspection = inspection
        self._has_asked_others = False

    def explained(self, failures: Mapping[int, ProcessFailure]) -> dict[int, ProcessFailure]:
        """The failures, by local rank, with what the watchdog knows, by global rank."""
        from holdfast.errors.failure import ProcessFailure

        ranks = {worker.local_rank: worker.global_rank for worker in self._group.workers}
        return {
            ranks[local_rank]: ProcessFailure.of(complete(failure.record, self._of_watchdog(failure)))
            for local_rank, failure in failures.items()
        }

    def accused(self, failures: Mapping[int, ProcessFailure]) -> dict[int, ProcessFailure]:
        """The failures, by global rank. If they only lost a peer, the cause says who was not waiting.

        After a timeout, other nodes are asked where their workers are, once in an attempt: a report of the failure
        would stop them.
        """
        from holdfast.errors.failure import ProcessFailure, in_order
        from holdfast.errors.kind import FailureKind, says_timeout

        self._survivors.exclude(failures)
        rank, cause = in_order(failures)[0]
        may_ask, self._has_asked_others = not self._has_asked_others, True
        if cause.kind is not FailureKind.COMMUNICATION:
            return dict(failures)
        if may_ask and says_timeout(cause.message):
            from holdfast.errors.summary import gist

            why = gist(cause)
            self._survivors.add(self._inspection.ask_after_timeout(why, self._survivors.ranks_here()), why)
        findings = Findings(accusation=self._survivors.accusation())
        return {**failures, rank: ProcessFailure.of(complete(cause.record, findings))}

    def show_survivors(self, result: RunResult) -> None:
        """Add to the root cause where the other workers were. Only on a single node.

        Several nodes show the same text, and none knows where the others' workers were. For them, the report has it.
        """
        if not result.is_failed() or not result.failures or (self._group.group_world_size or 1) > 1:
            return
        from holdfast.errors.failure import ProcessFailure, in_order

        rank, cause = in_order(result.failures)[0]
        findings = Findings(survivors=tuple(self._survivors.where()))
        result.failures[rank] = ProcessFailure.of(complete(cause.record, findings))

    def _of_watchdog(self, failure: ProcessFailure) -> Findings:
        timer = self._timers.expired_in(failure.pid)
        return Findings() if timer is None else Findings(timer, self._survivors.place_of(failure.local_rank))
