from __future__ import annotations

import pickle

import pytest

from holdfast.errors import ChildFailedError, InputError, ProcessFailure


def failures(times):
    made = {}
    for rank, at in times.items():
        made[rank] = ProcessFailure(local_rank=rank, pid=100 + rank, exitcode=-15, error_file="")
        made[rank].timestamp = at
    return made


def test_the_first_failure_is_the_earliest_to_the_millisecond():
    error = ChildFailedError("main", failures({0: 10.002, 1: 10.001, 2: 10.003}))
    assert error.get_first_failure() == (1, error.failures[1])


def test_of_equally_early_failures_the_lowest_rank_is_first():
    assert ChildFailedError("main", failures({7: 10.0, 3: 10.0})).get_first_failure()[0] == 3


def test_its_text_is_the_summary():
    error = ChildFailedError("main", failures({0: 10.0}))
    assert str(error) == error.format_msg()
    assert "main FAILED" in str(error)
    assert error.format_msg(boarder_delim="#", section_delim="~").startswith("\n####")


def test_without_a_failure_there_is_no_error_to_raise():
    with pytest.raises(InputError, match="given no failure"):
        ChildFailedError("main", {})


def test_it_survives_the_way_to_another_process():
    error = ChildFailedError("main", failures({0: 10.0, 1: 9.0}))
    error.add_note("on the second attempt")
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is ChildFailedError
    assert (arrived.name, arrived.failures) == (error.name, error.failures)
    assert str(arrived) == str(error)
    assert arrived.__notes__ == ["on the second attempt"]
