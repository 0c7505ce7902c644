"""What exits mean, judged without a process: from the keeper's reports alone."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from holdfast.processes.keeper_client import Exit
from holdfast.processes.logs import LogsDest
from holdfast.processes.outcome import Outcome


def exited(code, timestamp=100.0, *, on_its_own=True):
    return Exit(code, timestamp, 0, on_its_own=on_its_own)


def outcome_of(exits, *, ranks=2, ended_well=False, strict_exit=False, **reports):
    """The outcome of a set whose keeper has reported this."""
    keeper = SimpleNamespace(
        exits=exits,
        pids={rank: 1000 + rank for rank in range(ranks)},
        **{"is_gone": False, "keeper_died": False, "keeper_pid": 999, "started_at": 0.0, "heard": {}, **reports},
    )
    none = dict.fromkeys(range(ranks), "")
    logs = LogsDest(dict(none), dict(none), {}, {}, dict(none))
    envs = {rank: {} for rank in range(ranks)}
    return Outcome(keeper, envs, logs, lambda _: ended_well, strict_exit=strict_exit)


def collected(outcome):
    return outcome.collect(lambda rank: rank * 10)


@pytest.mark.parametrize(
    ("exits", "is_over", "is_success"),
    [
        ({}, False, False),
        ({0: exited(0)}, False, False),
        ({0: exited(0), 1: exited(0)}, True, True),
        ({0: exited(1)}, True, False),
        ({0: exited(0), 1: exited(-signal.SIGSEGV)}, True, False),
    ],
)
def test_a_set_is_over_when_all_have_ended_or_one_has_failed(exits, is_over, is_success):
    outcome = outcome_of(exits)
    assert (outcome.is_over(), outcome.is_success()) == (is_over, is_success)


def test_a_set_without_processes_is_over_whatever_was_reported():
    assert outcome_of({}, is_gone=True).is_over()


def test_all_values_are_there_or_none():
    assert collected(outcome_of({0: exited(0), 1: exited(0)})).return_values == {0: 0, 1: 10}
    result = collected(outcome_of({0: exited(0), 1: exited(3)}))
    assert result.return_values == {}
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {1: 3}


def test_the_first_failure_is_the_earliest():
    outcome = outcome_of({0: exited(1, 200.0), 1: exited(2, 150.0)})
    assert outcome.first_failure().local_rank == 1
    assert outcome_of({0: exited(0)}).first_failure() is None


def test_a_process_that_was_stopped_has_not_failed():
    outcome = outcome_of({0: exited(1), 1: exited(-signal.SIGTERM, on_its_own=False)})
    outcome.stopped_at = 50.0
    result = collected(outcome)
    assert list(result.failures) == [0]
    assert result.terminated == {1: -signal.SIGTERM}


def test_a_process_that_was_disturbed_has_not_failed():
    outcome = outcome_of({0: exited(1), 1: exited(1)})
    outcome.disturbed([1], 90.0)
    result = collected(outcome)
    assert (list(result.failures), result.terminated) == ([0], {1: 1})
    assert outcome.first_failure().local_rank == 0


@pytest.mark.parametrize(
    ("code", "ended_well", "strict_exit", "is_late"),
    [
        (-signal.SIGABRT, True, False, True),
        (-signal.SIGABRT, True, True, False),
        (-signal.SIGABRT, False, False, False),
        (-signal.SIGKILL, True, False, False),
        (1, True, False, False),
    ],
)
def test_a_crash_after_a_good_end_is_a_success_with_a_remark(code, ended_well, strict_exit, is_late):
    outcome = outcome_of({0: exited(code)}, ranks=1, ended_well=ended_well, strict_exit=strict_exit)
    result = collected(outcome)
    assert (list(result.late_crashes), list(result.failures)) == (([0], []) if is_late else ([], [0]))
    assert result.return_values == ({0: 0} if is_late else {})


def test_a_value_that_cannot_be_read_is_a_failure():
    def read(_rank):
        raise ValueError("no such class")

    result = outcome_of({0: exited(0)}, ranks=1).collect(read)
    assert "its return value cannot be read: ValueError('no such class')" in result.failures[0].message


def test_workers_that_died_with_their_keeper_say_so():
    outcome = outcome_of({0: exited(-signal.SIGKILL)}, ranks=1, is_gone=True, keeper_died=True)
    assert "killed with its keeper, PID 999" in collected(outcome).failures[0].message
