from __future__ import annotations

import pytest
from signpost import Signpost
from warm_jobs import Jobs


@pytest.fixture
def jobs(tmp_path):
    directory = tmp_path / "jobs"
    directory.mkdir()
    jobs = Jobs(directory)
    yield jobs
    jobs.close()


@pytest.fixture
def post(tmp_path):
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()
