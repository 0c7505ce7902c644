from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from multiprocessing import resource_tracker

import pytest
from liveness import footprint, settle
from signpost import Signpost

from holdfast.processes import DefaultLogsSpecs, start_processes


@pytest.fixture
def post(tmp_path):
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def logs(tmp_path):
    """Makes log specs whose files end with the test."""
    return lambda **options: DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), **options)


@pytest.fixture
def start(logs):
    """Starts sets of processes: `start(entrypoint, [args of rank 0, args of rank 1, ...])`. All end with the test."""
    contexts = []

    def start_one(entrypoint, args, envs=None, logs_specs=None, **options):
        envs = {rank: {} for rank in range(len(args))} if envs is None else envs
        context = start_processes(
            "set", entrypoint, dict(enumerate(args)), envs, logs_specs or logs(), **{"shutdown_timeout": 60, **options}
        )
        contexts.append(context)
        return context

    yield start_one
    for context in contexts:
        context.close(timeout=0)


@pytest.fixture
def run_python(start):
    """Starts ``python -c`` with a script for each rank."""
    return lambda scripts, **options: start(sys.executable, [("-c", script) for script in scripts], **options)


@pytest.fixture(params=["copy", "fresh"])
def image(request):
    """Runs a test with a keeper in a copy of this process, and in a fresh interpreter because there is a thread."""
    if request.param == "copy":
        yield request.param
        return
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield request.param
    done.set()
    thread.join()
    # Joined, it may still be on its way out of the kernel, and would count as a thread of the next test.
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        os.sched_yield()


@pytest.fixture
def nothing_left():
    """The test must leave this process with the descriptors, threads and children it had."""
    # What multiprocessing keeps from its first use to the end of the process: a tracker, and shared memory.
    resource_tracker.ensure_running()
    multiprocessing.Value("i")
    multiprocessing.get_context("spawn").Value("i")
    before = footprint()
    yield
    settle(before)
