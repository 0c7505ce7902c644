"""Programs of the frameworks, started as their users start them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

DEADLINE_S = 240
"""How long a job may take: frameworks take seconds to import, and the machine may be busy."""


@pytest.fixture(autouse=True)
def framework(request):
    """A module names the package it is about. Without it there is nothing to test, which is a failure in CI."""
    package = request.module.FRAMEWORK
    if importlib.util.find_spec(package) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs {package}: make test installs it")


@pytest.fixture
def examples():
    return HERE.parent.parent / "examples"


@pytest.fixture
def programs():
    return HERE / "programs"


@pytest.fixture(params=["agent", "rank0"])
def store_host(request):
    """Who serves torch's store. To a program it must make no difference."""
    return f"--store-host={request.param}"


@pytest.fixture
def job_environment():
    return _environment()


@pytest.fixture
def job(tmp_path):
    """Runs `holdfast run` with these words to its end, which must be a good one. What it printed."""

    def run(*words, launcher=("holdfast", "run"), **environment):
        ran = subprocess.run(
            [sys.executable, "-m", *launcher, *map(str, words)],
            cwd=tmp_path,
            env={**_environment(), "TMPDIR": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def _environment():
    """This process's, without what would steer a job. One thread for each worker: there are few cores."""
    steers_a_job = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "ACCELERATE_", "JAX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steers_a_job)}
    return {**kept, "OMP_NUM_THREADS": "1"}
