from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

CHILD_DEADLINE_S = 120


@pytest.fixture
def run_python():
    """Run Python code in a process of its own, with additions to the environment and to the module path."""

    def run(code, module_path="", **environment):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in {"TORCHELASTIC_ERROR_FILE", "HOLDFAST_ERROR_HANDLER", "PYTHONFAULTHANDLER"}
        }
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


@pytest.fixture
def error_file(tmp_path, monkeypatch):
    """The place of this process's own error file."""
    path = tmp_path / "own" / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path
