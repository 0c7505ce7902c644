"""The metrics of a run, under torch's names."""

from __future__ import annotations

import pytest

from holdfast.agent import WorkerState, run_metrics


@pytest.fixture
def put(monkeypatch):
    values = {}
    monkeypatch.setattr(run_metrics, "put_metric", values.__setitem__)
    return values


def test_a_look(put):
    run_metrics.put_look("r", WorkerState.HEALTHY, 2)
    assert put == {"workers.r.remaining_restarts": 2, "workers.r.healthy": 1}


@pytest.mark.parametrize("is_failed", [False, True])
@pytest.mark.parametrize("has_restarted", [False, True])
def test_a_run_counts_in_one_of_four_ways(put, is_failed, has_restarted):
    run_metrics.put_outcome("r", is_failed=is_failed, has_restarted=has_restarted)
    assert put.pop("workers.r.run_total") == 1
    one = f"workers.r.run_{'failed' if is_failed else 'success'}_{'with' if has_restarted else 'no'}_retries"
    assert len(put) == 4
    assert [name for name, value in put.items() if value] == [one]


@pytest.mark.parametrize(
    ("is_failed", "remaining", "flakiness"), [(True, 3, 100), (False, 3, 0), (False, 1, 50), (False, 0, 75)]
)
def test_flakiness_is_the_share_of_failed_attempts(put, is_failed, remaining, flakiness):
    run_metrics.put_flakiness("r", is_failed=is_failed, remaining_restarts=remaining, max_restarts=3)
    assert put == {"workers.r.flakiness": flakiness}
