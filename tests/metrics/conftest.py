from __future__ import annotations

import functools

import pytest
from fresh_python import run_fresh

from holdfast.metrics import MetricHandler, streams


class Listener(MetricHandler):
    """Keeps what it gets."""

    def __init__(self):
        self.data = []

    def emit(self, metric_data):
        self.data.append(metric_data)

    def values(self):
        return [(data.group_name, data.name, data.value) for data in self.data]


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch):
    monkeypatch.setattr(streams, "_configured", streams._Configured())
    monkeypatch.delenv("HOLDFAST_METRIC_HANDLER", raising=False)


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def run_python():
    """Run Python code in a process of its own, with additions to the environment and to the module path."""
    return functools.partial(run_fresh, without=("HOLDFAST_METRIC_HANDLER",))
