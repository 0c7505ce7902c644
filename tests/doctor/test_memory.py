from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.doctor.finding import State
from holdfast.doctor.memory import Facts, Shared, cgroup_memory, judge, probe, probe_shared

GIB = 1 << 30
GOOD = Facts(Shared(16 * GIB, 16 * GIB), 64 * GIB, None, 0, 0)

IN_A_MACHINE_WITH = 'mount -t tmpfs -o "$1" tmpfs /dev/shm && shift && exec "$@"'


@pytest.mark.parametrize(
    ("changes", "check", "state", "words"),
    [
        ({}, "shared", State.OK, "16 GiB are free"),
        ({"shared": Shared(64 << 20, 64 << 20)}, "shared", State.WARNING, "docker's default"),
        ({"shared": Shared(GIB, GIB)}, "shared", State.WARNING, "--shm-size"),
        ({"shared": Shared(GIB, 1 << 20)}, "shared", State.PROBLEM, "ls -la /dev/shm"),
        ({"shared": Shared(error="Permission denied")}, "shared", State.PROBLEM, "Permission denied"),
        ({}, "available", State.OK, "the machine has 64 GiB of memory to 8 workers"),
        ({"available_bytes": 4 * GIB}, "available", State.WARNING, "start fewer workers"),
        ({"limit_bytes": 32 * GIB, "used_bytes": 2 * GIB}, "available", State.OK, "leaves 30 GiB"),
        ({"limit_bytes": 8 * GIB, "used_bytes": 2 * GIB}, "available", State.WARNING, "raise the limit"),
        ({"limit_bytes": 128 * GIB}, "available", State.OK, "the machine has 64 GiB"),
        ({"overcommit": 2}, "overcommit", State.WARNING, "vm.overcommit_memory=0"),
    ],
)
def test_what_is_said_of_memory(changes, check, state, words):
    found = {finding.check: finding for finding in judge(GOOD._replace(**changes), 8)}[check]
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_this_machines_memory_is_read():
    facts = probe()
    assert facts.available_bytes > 1 << 20
    assert facts.shared.error == ""
    assert facts.shared.total_bytes >= facts.shared.free_bytes > 0


def test_a_place_that_is_not_there_is_an_error():
    assert probe_shared("/srv/none").error == "No such file or directory"


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "code", "state", "words"),
    [("size=64m", 0, "warning", "docker"), ("ro", 1, "problem", "Read-only")],
)
def test_a_small_or_closed_dev_shm_is_told(options, code, state, words):
    command = [sys.executable, "-m", "holdfast", "doctor", "--only", "memory", "--json"]
    alone = ["unshare", "--mount", "sh", "-c", IN_A_MACHINE_WITH, "sh", options]
    ran = subprocess.run([*alone, *command], capture_output=True, text=True, timeout=120, check=False)
    found = {one["check"]: one for one in json.loads(ran.stdout)}["shared"]
    assert (ran.returncode, found["state"]) == (code, state)
    assert words in found["what"]


def test_the_smallest_limit_of_the_cgroups_counts(tmp_path):
    point, proc = tmp_path / "cgroup", tmp_path / "proc"
    for directory, limit, used in (
        (point / "pod/job", "max", 5),
        (point / "pod", str(GIB), 7),
        (point, str(8 * GIB), 9),
    ):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.max").write_text(f"{limit}\n")
        (directory / "memory.current").write_text(f"{used}\n")
    proc.mkdir()
    (proc / "cgroup").write_text("0::/pod/job\n")
    (proc / "mountinfo").write_text(f"30 24 0:26 / {point} rw,nosuid - cgroup2 cgroup rw\n")
    assert cgroup_memory(str(proc)) == (GIB, 7)
    (proc / "mountinfo").write_text("")
    assert cgroup_memory(str(proc)) == (None, 0)
