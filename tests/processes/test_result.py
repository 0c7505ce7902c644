"""The result of a set: a plain record."""

from __future__ import annotations

import pickle

import pytest

from holdfast.errors import ProcessFailure
from holdfast.processes import RunProcsResult


def test_an_empty_result_has_all_its_parts_and_no_failure():
    result = RunProcsResult()
    assert sorted(vars(result)) == [
        *("failures", "late_crashes", "return_values", "stderrs", "stdouts", "terminated"),
    ]
    assert not any(vars(result).values())
    assert not result.is_failed()
    assert RunProcsResult().return_values is not result.return_values


def test_only_failures_make_it_a_failed_one():
    failure = ProcessFailure(0, 1234, 1, "")
    assert RunProcsResult(failures={0: failure}).is_failed()
    assert not RunProcsResult(late_crashes={0: failure}, terminated={1: -15}).is_failed()


def test_results_with_the_same_parts_are_equal_can_be_copied_and_have_no_hash():
    result = RunProcsResult({0: "value"}, stdouts={0: "out"})
    assert result == RunProcsResult({0: "value"}, stdouts={0: "out"}) == pickle.loads(pickle.dumps(result))
    assert result != RunProcsResult({0: "value"})
    assert "return_values={0: 'value'}" in repr(result)
    with pytest.raises(TypeError):
        hash(result)
