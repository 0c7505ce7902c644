from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from holdfast.events import destinations

CHILD_DEADLINE_S = 120


@pytest.fixture(autouse=True)
def _fresh_handlers(monkeypatch):
    """No test sees a handler, or a level, of another."""
    monkeypatch.delenv("LOGLEVEL", raising=False)
    monkeypatch.setattr(destinations, "_handlers", dict(destinations._handlers))


@pytest.fixture
def run_python():
    """Run Python code in a process of its own, with additions to the environment and to the module path."""

    def run(code, module_path="", **environment):
        inherited = {name: value for name, value in os.environ.items() if name != "LOGLEVEL"}
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
