from __future__ import annotations

import functools

import pytest
from fresh_python import run_fresh


@pytest.fixture
def run_python():
    """Run Python code in a process of its own, with additions to the environment and to the module path."""
    return functools.partial(
        run_fresh, without=("TORCHELASTIC_ERROR_FILE", "HOLDFAST_ERROR_HANDLER", "PYTHONFAULTHANDLER")
    )


@pytest.fixture
def error_file(tmp_path, monkeypatch):
    """The place of this process's own error file."""
    path = tmp_path / "own" / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path
