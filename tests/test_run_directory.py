"""A run's directory: its names are in one place, and what is written by them is found by them."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from costly_imports import COSTLY_IMPORTS

from holdfast.run_directory import AGENTS_MAX, RunDirectory, runs_in, stacks_file, stacks_name

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"


def made(log_dir, run_id="job7", events=b""):
    run = RunDirectory.create(str(log_dir), run_id)
    Path(run.events).write_bytes(events)
    return run


def test_a_new_run_has_a_private_directory_of_its_own(tmp_path):
    first, second = RunDirectory.create(str(tmp_path), "job7"), RunDirectory.create(str(tmp_path), "job7")
    assert first.path != second.path
    assert re.fullmatch(r"job7_[0-9a-f]{8}", os.path.basename(first.path))
    assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o700


def test_a_run_id_cannot_name_a_directory_elsewhere(tmp_path):
    run = RunDirectory.create(str(tmp_path), "../../etc/\x1b[31m" + "x" * 200)
    assert os.path.dirname(run.path) == str(tmp_path)
    assert os.path.basename(run.path).startswith(".._.._etc___31mxxx")
    assert len(os.path.basename(run.path)) == 60 + len("_01234567")


def test_the_path_is_absolute_wherever_the_agent_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RunDirectory.create(".", "job7").path.startswith(f"{tmp_path}/job7_")


def test_the_files_of_a_run(tmp_path):
    run = RunDirectory("/logs/job7_01234567")
    assert (run.events, run.requests) == ("/logs/job7_01234567/events.jsonl", "/logs/job7_01234567/requests")
    assert run.report_page == "/logs/job7_01234567/report.html"
    assert run.stacks("hang-1", "json") == "/logs/job7_01234567/stacks/hang-1.json"
    assert os.path.join(run.path, stacks_file("hang-1", "txt")) == run.stacks("hang-1", "txt")


def test_an_attempt_has_a_directory_for_each_rank_and_never_that_of_another(tmp_path):
    run = RunDirectory.create(str(tmp_path), "job7")
    attempts = [run.make_attempt("3", [0, 1]) for _ in range(3)]
    assert [os.path.basename(each.path) for each in attempts] == ["attempt_3", "attempt_3.1", "attempt_3.2"]
    assert sorted(os.listdir(attempts[2].path)) == ["0", "1"]
    attempt = attempts[0]
    files = [attempt.stdout(1), attempt.stderr(1), attempt.error_file(1)]
    assert [os.path.relpath(path, attempt.path) for path in files] == ["1/stdout.log", "1/stderr.log", "1/error.json"]


def test_an_attempt_makes_the_runs_directory_again(tmp_path):
    """A clean-up of the temporary directory may have removed it."""
    run = RunDirectory.create(str(tmp_path), "job7")
    os.rmdir(run.path)
    assert os.path.isdir(run.make_attempt("0", [0]).of_rank(0))


@pytest.mark.parametrize(
    ("make", "has_events", "is_run"),
    [(Path.touch, True, True), (os.mkfifo, True, False), (Path.mkdir, True, False), (str, False, False)],
)
def test_only_a_file_is_an_event_log(make, has_events, is_run, tmp_path):
    run = RunDirectory(str(tmp_path))
    make(tmp_path / "events.jsonl")
    assert (run.has_events(), run.is_run()) == (has_events, is_run)


def test_siblings_have_the_same_run_id_and_an_event_log(tmp_path):
    run, sibling, _ = made(tmp_path), made(tmp_path), made(tmp_path, "job70")
    RunDirectory.create(str(tmp_path), "job7")  # it has written nothing yet
    assert [each.path for each in run.siblings()] == [sibling.path]
    assert RunDirectory(f"{tmp_path}/gone/job7_1").siblings() == []


def test_runs_in_a_directory_are_found_by_name_and_bounded(tmp_path, monkeypatch):
    runs = sorted(made(tmp_path, name).path for name in ("b", "a", "c"))
    assert [each.path for each in runs_in(str(tmp_path))] == runs
    monkeypatch.setattr("holdfast.run_directory.AGENTS_MAX", 2)
    assert [each.path for each in runs_in(str(tmp_path))] == runs[:2]
    assert AGENTS_MAX > 1000
    with pytest.raises(OSError, match="No such file"):
        runs_in(str(tmp_path / "gone"))


def test_names_of_stacks_say_why_and_when_and_are_never_the_same():
    at = time.mktime((2026, 1, 31, 23, 59, 59, 0, 0, -1))
    first, second = stacks_name("hang", at), stacks_name("hang", at)
    assert re.fullmatch(r"hang-20260131T235959-[0-9a-f]{8}", first)
    assert first != second
    assert re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{8}", stacks_name())


@pytest.mark.parametrize("name", ["events.jsonl", "report.html", "stderr.log", "error.json", "filtered_stdout.log"])
def test_no_other_module_spells_a_file_name(name):
    """Texts for people may name a file; code asks the directory."""
    spelled = re.compile(rf"""["']{re.escape(name)}["']""")
    modules = [path.name for path in sorted(SOURCE.rglob("*.py")) if spelled.search(path.read_text(encoding="utf-8"))]
    assert modules == ["run_directory.py"]


def test_importing_costs_no_heavy_module():
    code = "import sys; before = set(sys.modules); import holdfast.run_directory; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not COSTLY_IMPORTS & set(ran.stdout.split())
