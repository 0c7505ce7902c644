from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from signpost import Signpost

from holdfast.stacks.collect import WorkerTarget

SUPPORT = str(Path(__file__).parent.parent / "support")

PRELUDE = """\
import faulthandler, signal, sys
post, stacks = sys.argv[1:3]
from signpost import tell
def answer():
    faulthandler.register(signal.SIGRTMIN + 12, file=open(stacks, "ab"), all_threads=True, chain=False)
"""
"""What a test's worker has: the handler that every worker of a run has from its start."""


@pytest.fixture
def post(tmp_path):
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def start_worker(tmp_path, post):
    """Starts a program as worker of a rank, in Python or any other; it ends with the test."""
    started = []

    def start(code="", *, command=None):
        stacks = str(tmp_path / f"{len(started)}.stacks")
        script = tmp_path / f"program{len(started)}.py"
        script.write_text(PRELUDE + textwrap.dedent(code))
        words = [word.format(python=sys.executable, script=script) for word in command or ["{python}", "{script}"]]
        process = subprocess.Popen(
            [*words, post.path, stacks],
            env=os.environ | {"PYTHONPATH": SUPPORT},
            start_new_session=True,  # so that its children end with it
        )
        started.append(process)
        return WorkerTarget(process.pid, stacks)

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
