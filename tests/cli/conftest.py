from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import pytest

DEADLINE_S = 120
NOT_OURS = ("PET_", "TORCHELASTIC_", "HOLDFAST_")
NOT_OURS_EITHER = {"OMP_NUM_THREADS", "PYTHON_EXEC", "LOGLEVEL", "CUDA_VISIBLE_DEVICES", "COLUMNS"}


def clean_environment(**added):
    """The environment of the tests without what would steer a job."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(NOT_OURS) and name not in NOT_OURS_EITHER
    }
    return {**kept, **{name: str(value) for name, value in added.items()}}


@pytest.fixture(autouse=True)
def own_environment(tmp_path):
    """A test sees no job's variables, and what it sets in this process ends with it."""
    with mock.patch.dict(os.environ, clean_environment(TMPDIR=tmp_path), clear=True):
        yield


@pytest.fixture
def script(tmp_path):
    """Makes a script: `script("print(1)")` is its path."""

    def make(code="", name="script.py"):
        path = tmp_path / name
        path.write_text(code)
        return str(path)

    return make


@pytest.fixture
def holdfast(tmp_path):
    """Runs ``python -m holdfast`` to its end."""

    def run(*words, cwd=None, **environment):
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *map(str, words)],
            env=clean_environment(**{"TMPDIR": tmp_path, **environment}),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=cwd or tmp_path,
            check=False,
        )

    return run
