"""The demo of three machines. That it does what it shows is tested with the README, whose command it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "three_machines.sh"
DEADLINE_S = 90


@pytest.mark.root
def test_nothing_is_left_of_it_after_ctrl_c(tmp_path):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    demo = subprocess.Popen(
        [SCRIPT],
        env={"PATH": path, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert any("resumes after step 0" in line for line in demo.stdout), "its workers run"
        os.killpg(demo.pid, signal.SIGINT)
        demo.stdout.read()  # its end: nobody who could write is left
        assert demo.wait(DEADLINE_S) in (1, 130)  # the agents hear it, too, and may end first
        assert os.listdir(tmp_path) == []
        assert not programs_with(str(tmp_path))
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()


def programs_with(word):
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
        except OSError:
            continue
        if word.encode() in line:
            found.append(pid)
    return found


@pytest.mark.root
def test_a_system_that_lets_nobody_make_namespaces_is_told_of_in_one_line(tmp_path):
    fake = tmp_path / "unshare"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "three_machines.sh: only root may create namespaces on this system: run it with sudo\n"


@pytest.mark.root
def test_its_report_counts_three_machines_of_which_one_was_there_twice(tmp_path):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        [SCRIPT],
        env={"PATH": path, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    report = done.stdout.partition("--- the whole run")[2]
    for line in (
        "  outcome     succeeded",
        "  nodes       3 (--nnodes 2:3), 6 workers",
        "  agents      4, on 3 machines: machine3 had 2",
        "  restarts    0 (--max-restarts 0)",
    ):
        assert f"{line}\n" in report, report
    assert "machine3 (agent 1) was lost in generation 1" in report
    assert "no end" not in report
