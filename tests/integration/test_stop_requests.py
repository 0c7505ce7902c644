"""The request to stop, from the command to workers that are at different points of their start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from signpost import Signpost

ENDED_MAX_S = 120
GRACE_S = 3600
"""So long that a worker which does not hear fails the test."""

SAVES = """
import os, sys, time
from holdfast import worker
from signpost import tell

post, gate = sys.argv[1:]
if worker.rank() == 1:
    tell(post, "imports")
    open(gate).read()
elif not worker.stop_requested():
    tell(post, "listens")
while not worker.stop_requested():
    time.sleep(0.01)  # the training
tell(post, f"saved {worker.rank()}: {worker.stop_reason()}")
"""


@pytest.fixture
def post(tmp_path):
    made = Signpost(tmp_path / "signpost")
    yield made
    made.close()


def test_a_worker_that_still_imports_when_its_job_is_stopped_saves_too(tmp_path, post):
    script, gate = tmp_path / "saves.py", tmp_path / "gate"
    script.write_text(SAVES)
    os.mkfifo(gate)
    support = os.path.dirname(sys.modules[Signpost.__module__].__file__)
    options = ["--nproc-per-node", "2", "--stop-grace", str(GRACE_S), "--log-dir", tmp_path / "logs"]
    job = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", *options, script, post.path, gate],
        env={**os.environ, "PYTHONPATH": support},
    )
    try:
        assert sorted(post.lines(2)) == ["imports", "listens"]
        job.send_signal(signal.SIGTERM)
        assert post.line() == "saved 0: the agent got SIGTERM"
        gate.write_text("go on")
        assert post.line() == "saved 1: the agent got SIGTERM"
        assert job.wait(ENDED_MAX_S) == 128 + signal.SIGTERM
    finally:
        job.kill()
        job.wait()
