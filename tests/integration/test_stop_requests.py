"""The request to stop, from the command to workers that are at different points of their start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from signpost import Signpost

from holdfast.rendezvous.hosting import free_port

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


SAVES_LATER = """
import os, sys, time
from holdfast import worker
from signpost import tell

post, gate = sys.argv[1:]
worker.stop_requested()
tell(post, f"listens {os.environ['GROUP_RANK']}")
while not worker.stop_requested():
    time.sleep(0.01)
if os.environ["GROUP_RANK"] == "1":
    tell(post, "saves")
    open(gate).read()
tell(post, f"saved {os.environ['GROUP_RANK']}")
"""


def meeting(backend, port, rank):
    """The options of a node; that of rank 0 serves the store."""
    if backend == "static":
        return ["--master-port", str(port)]
    is_host = "true" if rank == 0 else "false"
    return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", f"--rdzv-conf=is_host={is_host}"]


@pytest.mark.parametrize("backend", ["c10d", "static"])
@pytest.mark.parametrize("asked", [[0], [0, 1]], ids=["the first", "both"])
def test_the_node_that_serves_the_store_leaves_when_others_have_saved(tmp_path, post, backend, asked):
    """Its own workers have ended long before. Without the store, the others' would be stopped while they save."""
    script, gate = tmp_path / "saves.py", tmp_path / "gate"
    script.write_text(SAVES_LATER)
    os.mkfifo(gate)
    support = os.path.dirname(sys.modules[Signpost.__module__].__file__)
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "holdfast", "run", "--nnodes", "2", "--stop-grace", str(GRACE_S)]
    agents = []
    try:
        for rank in range(2):
            options = [*meeting(backend, port, rank), "--node-rank", str(rank), "--log-dir", tmp_path / str(rank)]
            agents.append(
                subprocess.Popen(
                    [*command, *options, script, post.path, gate], env={**os.environ, "PYTHONPATH": support}
                )
            )
        assert sorted(post.lines(2)) == ["listens 0", "listens 1"]
        for rank in asked:
            agents[rank].send_signal(signal.SIGTERM)
        assert sorted(post.lines(2)) == ["saved 0", "saves"]
        gate.write_text("go on")
        assert post.line() == "saved 1"
        codes = [agent.wait(ENDED_MAX_S) for agent in agents]
        assert codes[0] == 128 + signal.SIGTERM
        assert codes[1] == (128 + signal.SIGTERM if 1 in asked else 1)
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
