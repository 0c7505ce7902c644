from __future__ import annotations

import os
from unittest import mock

import pytest
from worker_programs import Programs

NOT_OURS = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "PYTHON")


@pytest.fixture(autouse=True)
def own_environment():
    """A test sees nothing that steers a job or an interpreter, and what it sets in this process ends with it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
    with mock.patch.dict(os.environ, kept, clear=True):
        yield


@pytest.fixture
def programs(tmp_path):
    directory = tmp_path / "programs"
    directory.mkdir()
    return Programs(directory)
