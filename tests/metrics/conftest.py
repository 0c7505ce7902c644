from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from holdfast.metrics import MetricHandler, streams

CHILD_DEADLINE_S = 120


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

    def run(code, module_path="", **environment):
        inherited = {name: value for name, value in os.environ.items() if name != "HOLDFAST_METRIC_HANDLER"}
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=inherited
            | {"PYTHONPATH": os.pathsep.join(filter(None, [str(module_path), inherited.get("PYTHONPATH")]))}
            | {name: os.fspath(value) for name, value in environment.items()},
            capture_output=True,
            text=True,
            timeout=CHILD_DEADLINE_S,
            check=False,
        )

    return run
