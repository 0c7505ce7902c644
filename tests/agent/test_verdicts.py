"""Verdicts on failed attempts, as values in and values out."""

from __future__ import annotations

import pytest

from holdfast.agent import RunResult, Worker, WorkerState
from holdfast.agent.verdicts import UNWELL, cause_of, failed_elsewhere, fault_of, outline, restart_line
from holdfast.errors.failure import Failure, ProcessFailure
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.errors import JobFailedError
from holdfast.rendezvous.records import Failure as ToldFailure
from holdfast.rendezvous.records import Verdict

FIRST = Worker(local_rank=1, global_rank=5)


def failed(timestamp, kind=FailureKind.EXCEPTION, message="ValueError: bad", **more):
    more = {"error_file_data": {}, **more}
    return ProcessFailure.of(Failure(exit_code=1, kind=kind, message=message, timestamp=timestamp, **more))


def told(**more):
    return ToldFailure("n1", "node9", 7, 1, 4711, 3, "ValueError: bad", 1e9, "/there/error.json", "Trace\nback", **more)


def test_the_earliest_failure_that_is_no_victim_is_the_cause():
    failures = {2: failed(1.0, FailureKind.COMMUNICATION), 3: failed(3.0), 4: failed(2.0)}
    assert cause_of(failures, FIRST) == (4, failures[4])


def test_workers_that_are_unwell_have_a_cause():
    rank, cause = cause_of({}, FIRST)
    assert (rank, cause.local_rank, cause.message, cause.exitcode) == (5, 1, UNWELL, 1)


def test_a_fault_is_the_causes():
    result = RunResult(WorkerState.FAILED, failures={2: failed(1.0, exception="ValueError", where="t.py:3", ran_s=2.0)})
    fault = fault_of(result, FIRST)
    assert (fault.kind, fault.ran_s) == (FailureKind.EXCEPTION, 2.0)
    elsewhere = failed(1.0, exception="ValueError", where="t.py:4", ran_s=2.0)
    assert fault.signature != fault_of(RunResult(WorkerState.FAILED, failures={2: elsewhere}), FIRST).signature


@pytest.mark.parametrize(
    ("failures", "line"),
    [
        ({}, UNWELL),
        ({2: failed(1.0, message="ValueError: bad.")}, "rank 2 failed: ValueError: bad"),
        ({2: failed(2.0), 1: failed(1.0), 0: failed(3.0)}, "rank 1 failed: ValueError: bad, and 2 more"),
    ],
)
def test_a_failed_attempt_in_one_line(failures, line):
    assert outline(RunResult(WorkerState.FAILED, failures=failures)) == line


@pytest.mark.parametrize(
    ("cause", "victims", "count", "line"),
    [
        ({}, 0, 1, "restart 1 of 2: rank 7 on node9 failed: ValueError: bad"),
        ({"where": "t.py:3"}, 0, 5, "restart 5: rank 7 on node9 failed: ValueError: bad, at t.py:3"),
        ({}, 2, 1, "restart 1 of 2: rank 7 on node9 failed: ValueError: bad; 2 more failed because of it"),
        (
            {"exception": "SyntaxError", "where": "t.py:3 in step"},
            2,
            1,
            "restart 1 of 2: rank 7 on node9 failed: ValueError: bad, at t.py:3 in step; 2 more failed",
        ),
    ],
)
def test_why_all_nodes_restart(cause, victims, count, line):
    assert restart_line(Verdict(told(**cause), victims=victims), count, 2) == line


def test_a_failure_elsewhere_is_shown_as_it_was_told():
    result = failed_elsewhere(JobFailedError("no restart left", told()), RunResult(WorkerState.HEALTHY))
    (failure,) = result.failures.values()
    assert (list(result.failures), result.state, result.terminated) == ([7], WorkerState.FAILED, {})
    assert (failure.host, failure.message, failure.error_file) == ("node9", "Trace\nback", "/there/error.json")


@pytest.mark.parametrize(("pid", "is_here"), [(4711, True), (4712, False)])
def test_the_cause_has_its_error_file_on_its_own_node_only(pid, is_here):
    own = failed(1.0, pid=pid, error_file="/here/error.json", error_file_data={"message": "mine"})
    last = RunResult(WorkerState.FAILED, failures={7: own}, terminated={6: -15})
    result = failed_elsewhere(JobFailedError("no restart left", told()), last)
    failure = result.failures[7]
    assert (failure.error_file == "/here/error.json", failure.error_file_data == {"message": "mine"}) == (
        is_here,
        is_here,
    )
    assert result.terminated == ({6: -15} if is_here else {})
    assert own.message == "ValueError: bad", "what this node knows stays as it was"
