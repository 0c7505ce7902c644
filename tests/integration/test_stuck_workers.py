"""A worker that survives SIGKILL: the others must not go on beside it, also if its node is only asked to leave."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

DEADLINE_S = 60.0

PROGRAM = """
import os, signal, sys, time
who, generation = sys.argv[1], os.environ["HOLDFAST_GENERATION"]
directory = os.open(sys.argv[2], os.O_RDONLY)
if who == "unkillable":
    os.setresuid(65534, 65534, 65534)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.open(f"{who}.{generation}.{os.getpid()}", os.O_CREAT, dir_fd=directory)
time.sleep(600 if generation == "1" else 0)
"""


@pytest.fixture
def start(tmp_path):
    """Starts an agent of a job of one or two nodes, whose worker leaves a file when it runs."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    workers = tmp_path / "workers"
    workers.mkdir()
    workers.chmod(0o777)
    with socket.create_server(("localhost", 0)) as probe:
        port = probe.getsockname()[1]
    agents = []

    def start_agent(who, *before):
        flags = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "x"]
        flags += ["--rdzv-conf", "last_call_timeout=60", "--shutdown-timeout", "0", "--log-dir", str(tmp_path / who)]
        command = [*before, sys.executable, "-m", "holdfast", "run", *flags, str(program), who, str(workers)]
        path = tmp_path / f"{who}.stderr"  # not a pipe: a worker that cannot be killed would hold it open
        with path.open("wb") as stderr:
            agent = subprocess.Popen(command, stderr=stderr)
        agent.said = path.read_text
        agents.append(agent)
        return agent

    start_agent.port = port
    start_agent.workers = workers
    yield start_agent
    for agent in agents:
        agent.kill()
        agent.wait()
    for path in workers.iterdir():
        with suppress(ProcessLookupError):
            os.kill(int(path.name.rpartition(".")[2]), signal.SIGKILL)


def wait_for(is_so):
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


def is_served(port):
    with suppress(OSError), socket.create_connection(("localhost", port), 1):
        return True
    return False


def running(workers):
    return sorted(path.name.rpartition(".")[0] for path in workers.iterdir())


@pytest.mark.parametrize("signals", [1, 3])
def test_a_node_that_is_asked_to_leave_ends_the_job_if_a_worker_of_it_cannot_be_killed(start, signals):
    host = start("host")
    wait_for(lambda: is_served(start.port))
    leaving = start("unkillable", "setpriv", "--inh-caps=-kill", "--bounding-set=-kill")
    wait_for(lambda: len(running(start.workers)) == 2)
    for _ in range(signals):
        leaving.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # so that each comes by itself; fewer of them would only show less
    assert leaving.wait(DEADLINE_S) == 1
    assert "SIGKILL did not end PID" in leaving.said()
    assert host.wait(DEADLINE_S) == 1
    assert "no new worker may run beside it" in host.said()
    assert running(start.workers) == ["host.1", "unkillable.1"]
