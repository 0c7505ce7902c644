from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from liveness import quiet_footprint, settle
from signpost import Signpost

from holdfast.watchdog import FileTimerServer

SUPPORT = str(Path(__file__).parent.parent / "support")
DEADLINE_S = 60


@pytest.fixture
def post(tmp_path):
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def start_python():
    """Starts Python code in a process of its own, with additions to the environment; it ends with the test."""
    started = []

    def start(code, *args, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
            env=os.environ | {"PYTHONPATH": SUPPORT, "PYTHONWARNINGS": "ignore"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def sleeper():
    """Starts processes that do nothing; they end with the test."""
    started = []

    def start():
        process = subprocess.Popen(["sleep", "infinity"])
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


class Log:
    """The events a server has told of, which can be waited for."""

    def __init__(self):
        self.events = []
        self._changed = threading.Condition()

    def __call__(self, name, timer):
        with self._changed:
            self.events.append((name, timer and timer.scope_id))
            self._changed.notify_all()

    def wait_for(self, *event):
        with self._changed:
            assert self._changed.wait_for(lambda: event in self.events, DEADLINE_S), (event, self.events)


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "timers")


@pytest.fixture
def make_server(path, log):
    """Makes servers that stop with the test."""
    servers = []

    def make(**options):
        server = FileTimerServer(path, "job", **{"log_event": log, **options})
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def nothing_left():
    """The test must leave this process with the descriptors, threads and children it had."""
    # Threads of earlier tests may still be on their way out: a queue's that was closed, or one that was joined.
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(DEADLINE_S)
    before = quiet_footprint()
    yield
    settle(before)
