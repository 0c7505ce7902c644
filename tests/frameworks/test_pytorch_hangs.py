"""A rank that never comes back from its data loader, while torch's collectives wait for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORK = "torch"

pytestmark = pytest.mark.torch

NEVER_S = 3600
HANG_TIMEOUT_S = 3
COLLECTIVE_TIMEOUT_S = 3
DEADLINE_S = 240

on_one_node_and_on_two = pytest.mark.parametrize("nodes", [1, 2])


@pytest.fixture
def fail(tmp_path, job_environment, programs):
    """Runs two workers on one node or on two to their end, which must be a bad one. The text of the root cause, which
    all nodes have in common, and the run's events.
    """

    def run(nodes, *words):
        started = []
        try:
            for node, options in enumerate(_meeting(nodes)):
                flags = [*options, f"--nproc-per-node={2 // nodes}", f"--log-dir={tmp_path}/logs{node}"]
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "holdfast", "run", *flags, *map(str, words)],
                        cwd=tmp_path,
                        env={**job_environment, "TMPDIR": str(tmp_path)},
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
            told = [each.communicate(timeout=DEADLINE_S)[1] for each in started]
        finally:
            for each in started:
                each.kill()
                each.wait()
        assert [each.returncode for each in started] == [1] * nodes, told
        (block,) = {each.partition("Root Cause")[2].partition("\n====")[0] for each in told}
        return block, list(_events(tmp_path))

    return run


def _meeting(nodes):
    if nodes == 1:
        return [[]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=job", f"--nnodes={nodes}"]
    return [options] * nodes


def _events(directory):
    for path in sorted(Path(directory).glob("logs*/*/events.jsonl")):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["name"].startswith("holdfast."):
                yield event["name"].removeprefix("holdfast."), event["metadata"]["details"]


def slow_loader(programs):
    """The program, and the line that rank 1 stays at."""
    program = programs / "slow_loader.py"
    line = 1 + program.read_text().splitlines().index("        time.sleep(600)")
    return program, f"{program}:{line} in read"


@on_one_node_and_on_two
def test_the_rank_that_the_others_wait_for_is_blamed_for_a_hang(fail, programs, nodes):
    program, place = slow_loader(programs)
    block, events = fail(nodes, f"--hang-timeout={HANG_TIMEOUT_S}", program, "all_reduce", NEVER_S)
    assert "  rank      : 1 " in block
    assert "  kind      : hang\n" in block
    assert f"rank 1 is at {place}; rank 0 waits for it in all_reduce\n" in block
    causes = [details["cause"] for name, details in events if name == "verdict"]
    assert {(each["rank"], each["kind"]) for each in causes} == {(1, "hang")}


def test_a_collective_that_was_started_before_is_recognized_by_its_source(fail, programs):
    block, _ = fail(1, f"--hang-timeout={HANG_TIMEOUT_S}", programs / "slow_loader.py", "work", NEVER_S)
    assert "  rank      : 1 " in block
    assert "in read; rank 0 may wait for it in wait\n" in block


@on_one_node_and_on_two
def test_a_collective_that_timed_out_names_the_rank_that_it_waited_for(fail, programs, nodes):
    program, place = slow_loader(programs)
    block, events = fail(nodes, program, "all_reduce", COLLECTIVE_TIMEOUT_S)
    assert "  kind      : communication\n" in block
    assert f"rank 1 was at {place}, not in a collective: rank 0 may have waited for it" in block
    assert any(f"rank 1: {place}" in details["where"] for name, details in events if name == "stacks")
