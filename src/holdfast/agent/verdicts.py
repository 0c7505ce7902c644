"""Verdicts on failed attempts: the root cause, what a restart decision needs of it, and the words for people. Pure.

Only a failed attempt needs this module.
"""

from __future__ import annotations

from holdfast.agent.group import RunResult
from holdfast.agent.state import WorkerState
from holdfast.errors.diagnosis import Evidence
from holdfast.errors.failure import ProcessFailure, diagnosed, in_order
from holdfast.errors.kind import is_of_program
from holdfast.errors.summary import gist
from holdfast.rendezvous.restarts import Fault, failure_signature, hopeless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.agent.group import Worker
    from holdfast.rendezvous.errors import JobFailedError
    from holdfast.rendezvous.records import Verdict

UNWELL = "workers are unhealthy"


def cause_of(failures: Mapping[int, ProcessFailure], first: Worker) -> tuple[int, ProcessFailure]:
    """The root cause among `failures`, with its global rank. Without failures, the `first` worker stands for all."""
    if failures:
        return in_order(failures)[0]
    unwell = diagnosed(first.local_rank, 0, 1, "", Evidence())
    return first.global_rank, ProcessFailure.of(unwell.replace(message=UNWELL))


def fault_of(result: RunResult, first: Worker) -> Fault:
    """The facts that a restart decision needs."""
    _, cause = cause_of(result.failures, first)
    signature = failure_signature(cause.kind, cause.exception, cause.where, cause.ran_s)
    return Fault(cause.kind, cause.ran_s, signature, hopeless(cause))


def outline(result: RunResult) -> str:
    """A failed attempt in one line. The workers' stderr and error files have the details."""
    if not result.failures:
        return UNWELL
    (rank, first), *others = in_order(result.failures)
    more = f", and {len(others)} more" if others else ""
    return f"rank {rank} failed: {gist(first).rstrip('.')}{more}"


def restart_line(verdict: Verdict, count: int, budget: int) -> str:
    """Why all nodes restart, in the same words on each. `count` is the job's restarts; `budget` are allowed."""
    cause = verdict.cause
    where = f", at {cause.where}" if cause.where else ""
    because = "" if is_of_program(cause.exception, cause.where) else " because of it"
    victims = f"; {verdict.victims} more failed{because}" if verdict.victims else ""
    # A count above the budget means that a window gave some of it back: "5 of 1" would be nonsense.
    restart = f"restart {count} of {budget}" if count <= budget else f"restart {count}"
    return f"{restart}: rank {cause.rank} on {cause.host} failed: {cause.message}{where}{victims}"


def failed_elsewhere(failed: JobFailedError, last: RunResult) -> RunResult:
    """The result of a job that failed: every node shows the root cause in the same words.

    `last` is what this node knows of its own workers. If the cause is one of them, its error file is here.
    """
    from holdfast.rendezvous.failure_record import from_record

    told = failed.failure
    cause = from_record(told)
    here = last.failures.get(told.rank)
    terminated = None
    if here is not None and here.pid == told.pid:
        cause = cause.replace(error_file=here.record.error_file, error_file_data=here.error_file_data)
        terminated = last.terminated
    failures = {told.rank: ProcessFailure.of(cause)}
    return RunResult(WorkerState.FAILED, failures=failures, terminated=terminated, victims=failed.victims)
