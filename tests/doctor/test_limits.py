from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from holdfast.doctor.finding import State
from holdfast.doctor.limits import UNLIMITED, Facts, cgroup_pids, judge, probe

MANY = (1 << 20, 1 << 20)
GOOD = Facts(MANY, MANY, 100, False, (0, 0), (UNLIMITED, UNLIMITED), (8 << 20, UNLIMITED), False, None)


@pytest.mark.parametrize(
    ("changes", "workers", "check", "state", "words"),
    [
        ({}, 8, "open-files", State.OK, "262,080 machines"),
        ({"files": (UNLIMITED, UNLIMITED)}, 8, "open-files", State.OK, "any number of machines"),
        ({"files": (1024, 4096)}, 8, "open-files", State.WARNING, "ulimit -n"),
        ({"files": (128, 128)}, 8, "open-files", State.PROBLEM, "needs 160"),
        ({"processes": (200, 200)}, 1, "processes", State.OK, "100 of 200"),
        ({"processes": (200, 200)}, 8, "processes", State.WARNING, "100 are left for 8 workers"),
        ({"processes": (150, 150)}, 8, "processes", State.PROBLEM, "too few"),
        ({"processes": (150, 150), "is_root": True}, 8, "processes", State.OK, "no limit for root"),
        ({"cgroup_pids": (1000, 100)}, 8, "container-processes", State.OK, "100 of 1,000"),
        ({"cgroup_pids": (200, 100)}, 8, "container-processes", State.WARNING, "--pids-limit"),
        ({"cgroup_pids": (110, 100)}, 8, "container-processes", State.PROBLEM, "--pids-limit"),
        ({"memlock": (8 << 20, 8 << 20)}, 8, "locked-memory", State.OK, "8 MiB"),
        ({"memlock": (8 << 20, 8 << 20), "has_rdma": True}, 8, "locked-memory", State.WARNING, "ulimit -l unlimited"),
        ({"has_rdma": True}, 8, "locked-memory", State.OK, "unlimited"),
        ({}, 8, "stack", State.OK, "8 MiB"),
        ({"stack": (UNLIMITED, UNLIMITED)}, 8, "stack", State.NOTE, "2 MiB each"),
        ({"stack": (1 << 20, 1 << 20)}, 8, "stack", State.WARNING, "ulimit -s 8192"),
        ({}, 8, "core-files", State.OK, "none"),
        ({"core": (UNLIMITED, UNLIMITED)}, 8, "core-files", State.NOTE, "ulimit -c 0"),
        ({"core": (1 << 20, 1 << 20)}, 8, "core-files", State.OK, "up to 1 MiB"),
    ],
)
def test_what_is_said_of_a_limit(changes, workers, check, state, words):
    found = {finding.check: finding for finding in judge(GOOD._replace(**changes), workers)}[check]
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_the_limits_of_this_process_are_read():
    facts = probe()
    assert facts.files == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert facts.processes_used > 0


def test_a_process_with_few_descriptors_is_told_so(tmp_path):
    command = [sys.executable, "-m", "holdfast", "doctor", "--only", "limits", "--json", "--nproc-per-node", "8"]
    limited = ["prlimit", "--nofile=100:100", "--stack=1048576:8388608", *command]
    ran = subprocess.run(limited, capture_output=True, text=True, timeout=120, check=False)
    found = {one["check"]: one["state"] for one in json.loads(ran.stdout)}
    assert (ran.returncode, found["open-files"], found["stack"]) == (1, "problem", "warning")


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_cgroup_counts(tmp_path, version):
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    base = root if version == 2 else root / "pids"
    for directory, most, now in (
        (base / "pod/job", "max", "5"),
        (base / "pod", "100", "60"),
        (base, "1000", "200"),
    ):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pids.max").write_text(f"{most}\n")
        (directory / "pids.current").write_text(f"{now}\n")
    proc.mkdir()
    (proc / "cgroup").write_text("0::/pod/job\n" if version == 2 else "4:memory:/x\n3:pids:/pod/job\n")
    assert cgroup_pids(str(proc), str(root)) == (100, 60)
    assert cgroup_pids(str(proc), str(tmp_path / "none")) is None
