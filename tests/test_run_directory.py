"""A run's directory: its names are in one place, and what is written by them is found by them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from costly_imports import COSTLY_IMPORTS
from other_users import MALLORY, as_user

from holdfast.run_directory import AGENTS_MAX, RunDirectory, make_temporary, runs_in, stacks_file, stacks_name

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


# A directory that was lost


def said_once(capfd, lost, new):
    said = capfd.readouterr().err.splitlines()
    assert said == [f"holdfast: the run's directory {lost!r} was removed or replaced; the run continues in {new!r}"]


def test_a_run_stays_in_its_directory(tmp_path, capfd):
    run = RunDirectory.create(str(tmp_path), "job7")
    before = run.path
    run.make_attempt("0", [0])
    run.make_stacks()
    run.make_stacks()
    assert run.path == before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("use", [lambda run: run.make_attempt("0", [0]), RunDirectory.make_stacks])
@pytest.mark.parametrize(
    "leave", ["nothing", "a link", "a link to the directory itself", "another directory", "a file"]
)
def test_a_run_whose_directory_was_removed_or_replaced_continues_in_a_new_one(leave, use, tmp_path, capfd):
    run = RunDirectory.create(str(tmp_path), "job7")
    lost = run.path
    os.rename(lost, tmp_path / "away")
    (tmp_path / "elsewhere").mkdir()
    match leave:
        case "a link":
            os.symlink(tmp_path / "elsewhere", lost)
        case "a link to the directory itself":
            os.symlink(tmp_path / "away", lost)
        case "another directory":
            os.mkdir(lost)
        case "a file":
            Path(lost).touch()
    use(run)
    assert run.path != lost
    assert re.fullmatch(rf"{tmp_path}/job7_[0-9a-f]{{8}}", run.path)
    assert stat.S_IMODE(os.stat(run.path).st_mode) == 0o700
    assert os.listdir(run.path)
    assert os.listdir(tmp_path / "elsewhere") == os.listdir(tmp_path / "away") == []
    said_once(capfd, lost, run.path)
    continued = run.path
    use(run)
    assert run.path == continued


def test_a_move_is_told_once_with_the_directory_that_was_lost(tmp_path):
    run = RunDirectory.create(str(tmp_path), "job7")
    lost, told = run.path, []
    run.on_move = lambda lost: told.append((lost, run.path))
    run.ensure()
    assert told == []
    shutil.rmtree(lost)
    run.make_attempt("0", [0])
    run.make_stacks()
    assert told == [(lost, run.path)]
    assert run.path != lost


def test_the_users_log_directory_is_made_again(tmp_path, capfd):
    (tmp_path / "made").mkdir()
    run = RunDirectory.create(str(tmp_path / "made"), "job7")
    lost = run.path
    shutil.rmtree(tmp_path / "made")
    run.ensure()
    assert os.path.dirname(run.path) == f"{tmp_path}/made"
    said_once(capfd, lost, run.path)


@pytest.mark.parametrize("leave", ["nothing", "a link", "a directory"])
def test_a_temporary_directory_is_never_entered_again(leave, tmp_path, monkeypatch):
    """Its random name tells others which name to take."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    log_dir = Path(make_temporary())
    run = RunDirectory.create(str(log_dir), "job7", is_temporary=True)
    shutil.rmtree(log_dir)
    (tmp_path / "elsewhere").mkdir()
    match leave:
        case "a link":
            log_dir.symlink_to(tmp_path / "elsewhere")
        case "a directory":
            log_dir.mkdir()
    run.ensure()
    parent = os.path.dirname(run.path)
    assert re.fullmatch(rf"{tmp_path}/torchelastic_[0-9a-f]{{8}}", parent)
    assert parent != str(log_dir)
    assert stat.S_IMODE(os.stat(parent).st_mode) == 0o700
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(("is_temporary", "mode"), [(True, 0o700), (False, 0o755)])
def test_attempts_are_private_in_the_temporary_directory_and_follow_the_umask_elsewhere(is_temporary, mode, tmp_path):
    before = os.umask(0o022)
    try:
        attempt = RunDirectory.create(str(tmp_path), "job7", is_temporary=is_temporary).make_attempt("0", [0])
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(each).st_mode) for each in (attempt.path, attempt.of_rank(0))] == [mode, mode]


def test_stacks_do_not_go_through_a_link(tmp_path):
    run = RunDirectory.create(str(tmp_path), "job7")
    os.symlink(tmp_path, os.path.join(run.path, "stacks"))
    with pytest.raises(FileExistsError):
        run.make_stacks()


def test_a_directory_that_this_agent_did_not_make_is_used_only_if_it_is_there(tmp_path):
    RunDirectory(str(tmp_path)).make_stacks()
    for path in (tmp_path / "gone", tmp_path / "link"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(FileNotFoundError, match="missing or not ours"):
            RunDirectory(str(path)).make_stacks()
    assert not (tmp_path / "gone").exists()


@pytest.fixture
def shared(monkeypatch):
    """A directory like /tmp: everybody can write to it, and it is sticky."""
    path = Path(tempfile.mkdtemp())  # other users cannot reach those of pytest
    path.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(path))
    yield path
    shutil.rmtree(path)


def taken_by_mallory(log_dir):
    """As after a clean-up of the temporary directory: another user has taken the name, and lets everybody in."""
    shutil.rmtree(log_dir)
    log_dir.mkdir()
    log_dir.chmod(0o777)
    os.chown(log_dir, MALLORY, MALLORY)


@pytest.mark.root
@pytest.mark.parametrize("leaves", ["an empty directory", "his own run directory", "a link to one of root's"])
@pytest.mark.parametrize("is_temporary", [True, False])
def test_another_user_who_takes_the_name_gets_nothing(is_temporary, leaves, shared, tmp_path, capfd):
    log_dir = Path(make_temporary()) if is_temporary else shared / "logs"
    log_dir.mkdir(exist_ok=True)
    run = RunDirectory.create(str(log_dir), "job7", is_temporary=is_temporary)
    lost = run.path
    taken_by_mallory(log_dir)
    (tmp_path / "of_root").mkdir()
    with as_user(MALLORY):
        if leaves == "his own run directory":
            os.mkdir(lost)
            os.chmod(lost, 0o777)
        elif leaves == "a link to one of root's":
            os.symlink(tmp_path / "of_root", lost)
    left = sorted(log_dir.rglob("*"))
    run.make_attempt("1", [0])
    run.make_stacks()
    assert sorted(log_dir.rglob("*")) == left
    assert os.listdir(tmp_path / "of_root") == []
    assert re.fullmatch(rf"{shared}/torchelastic_[0-9a-f]{{8}}/job7_[0-9a-f]{{8}}", run.path)
    for path in (run.path, os.path.dirname(run.path), f"{run.path}/attempt_1", f"{run.path}/attempt_1/0"):
        status = os.stat(path)
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o700)
    said_once(capfd, lost, run.path)


@pytest.mark.root
def test_a_log_directory_is_not_made_again_below_another_users(shared):
    log_dir = shared / "mine" / "logs"
    log_dir.mkdir(parents=True)
    run = RunDirectory.create(str(log_dir), "job7")
    taken_by_mallory(shared / "mine")
    run.ensure()
    assert os.path.basename(os.path.dirname(run.path)).startswith("torchelastic_")
    assert os.listdir(shared / "mine") == []


@pytest.mark.root
def test_a_directory_that_became_another_users_is_not_ours(tmp_path):
    """As if its inode number had been used again."""
    run = RunDirectory.create(str(tmp_path), "job7")
    lost = run.path
    os.chown(lost, MALLORY, MALLORY)
    run.ensure()
    assert run.path != lost


# Finding


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


@pytest.mark.root
def test_runs_that_another_user_makes_beside_ours_are_no_siblings_and_do_not_hide_any(tmp_path, monkeypatch):
    run, sibling = made(tmp_path), made(tmp_path)
    planted = []
    for number in range(3):
        planted.append(RunDirectory(f"{tmp_path}/job7_+{number}"))
        os.mkdir(planted[-1].path)
        Path(planted[-1].events).touch()
        os.chown(planted[-1].path, MALLORY, MALLORY)
    monkeypatch.setattr("holdfast.run_directory.AGENTS_MAX", 2)
    assert [each.path for each in run.siblings()] == [sibling.path]
    assert {each.path for each in runs_in(str(tmp_path))} == {run.path, sibling.path}


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
