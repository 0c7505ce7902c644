from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.doctor.files import (
    Place,
    check,
    judge_logs,
    judge_temporary,
    probe,
    probe_parents,
    temporary_directories,
)
from holdfast.doctor.finding import State

GIB = 1 << 30
GOOD = Place("/srv/tmp", "", 8 * GIB, 1_000_000)

WITH_A_FILE_SYSTEM = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'


@pytest.mark.parametrize(
    ("place", "state", "words"),
    [
        (GOOD, State.OK, "/srv/tmp (TMPDIR), has 8 GiB free"),
        (Place("/srv/tmp", "Permission denied"), State.PROBLEM, "set TMPDIR"),
        (GOOD._replace(free_bytes=1 << 20), State.PROBLEM, "1 MiB free"),
        (GOOD._replace(free_bytes=GIB // 2), State.WARNING, "512 MiB free"),
        (GOOD._replace(free_inodes=7), State.PROBLEM, "room for 7 more files"),
        (GOOD._replace(free_inodes=None), State.OK, "8 GiB free"),
        (GOOD._replace(is_noexec=True), State.NOTE, "torch.compile"),
        (GOOD._replace(path="/srv/" + "x" * 80), State.WARNING, "AF_UNIX path too long"),
    ],
)
def test_what_is_said_of_the_temporary_directory(place, state, words):
    found = judge_temporary(place, "TMPDIR")
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_what_is_said_of_the_log_directory():
    assert judge_logs(GOOD).state is State.OK
    assert judge_logs(GOOD._replace(error="Read-only file system")).state is State.PROBLEM
    assert "(will be made in /srv)" in judge_logs(GOOD._replace(checked_at="/srv")).what


def test_a_variable_that_is_set_comes_first():
    assert temporary_directories({"TMP": "/srv/a", "TMPDIR": "/srv/b"}) == ["/srv/b", "/srv/a", "/tmp", "/var/tmp"]
    assert temporary_directories({"TMPDIR": ""}) == ["/tmp", "/var/tmp"]


def test_a_directory_is_really_written_to_and_left_as_it_was(tmp_path, make_context):
    assert probe(str(tmp_path)).free_bytes > 0
    assert probe(str(tmp_path / "none")).error == "No such file or directory"
    assert probe_parents(str(tmp_path / "a/b")).checked_at == str(tmp_path)
    (tmp_path / "file").touch()
    assert probe_parents(str(tmp_path / "file")).error == "Not a directory"
    found = check(make_context(environ={"TMPDIR": str(tmp_path / "none")}, log_dir=str(tmp_path / "logs")))
    assert [finding.state for finding in found] == [State.WARNING, State.OK]
    assert "; /tmp is used instead" in found[0].what
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_logs_need_no_directory(make_context):
    assert len(check(make_context(log_dir="/dev/null"))) == 1


@pytest.mark.root
@pytest.mark.parametrize(("options", "state"), [("size=16m", "problem"), ("noexec,size=2g", "note")])
def test_a_full_or_closed_file_system_is_told(tmp_path, options, state):
    command = [sys.executable, "-m", "holdfast", "doctor", "--only", "files", "--json"]
    alone = ["unshare", "--mount", "sh", "-c", WITH_A_FILE_SYSTEM, "sh", options, str(tmp_path)]
    ran = subprocess.run(
        [*alone, "env", f"TMPDIR={tmp_path}", *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert [one["state"] for one in json.loads(ran.stdout)] == [state]
