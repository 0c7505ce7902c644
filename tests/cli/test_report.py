"""Pages are written, and logs are read, in directories where somebody else may have planted something."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import written_runs

from holdfast.cli.command import main
from holdfast.errors.tree import InputError
from holdfast.events.run_index import register
from holdfast.report import entries
from holdfast.report.finding import find_run, read_node
from holdfast.run_directory import RunDirectory

NOBODY = 65534


@pytest.fixture
def written(tmp_path):
    return Path(written_runs.success(tmp_path / "theirs").directory)


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "authorized_keys"
    path.write_text("precious")
    return path


PAGE_TO_A_GUESSED_DRAFT = """
import os, sys
os.getpid = lambda: 7
from holdfast.cli.command import main
sys.exit(main(["report", sys.argv[1], "--html"]))
"""


def test_an_older_run_is_not_taken_for_a_newer_one_without_a_directory(holdfast, script, tmp_path):
    state = {"XDG_STATE_HOME": tmp_path / "state"}
    path = script("print('it ran')")
    assert holdfast("run", "--rdzv-id", "older", path, **state).returncode == 0
    assert "left no record" not in holdfast("report", **state).stdout
    assert holdfast("run", "--log-dir", "/dev/null", path, **state).returncode == 0
    told = holdfast("report", **state).stdout
    assert "Run older" in told
    assert "A newer run left no record, as with --log-dir /dev/null" in " ".join(told.split())
    assert "left no record" not in holdfast("report", "older", **state).stdout


def test_a_page_is_not_written_through_a_link_with_a_name_that_could_be_guessed(written, precious):
    """Whoever owns the directory puts a link for every process id there."""
    (written / "report.html.7.part").symlink_to(precious)
    command = [sys.executable, "-c", PAGE_TO_A_GUESSED_DRAFT, written]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert precious.read_text() == "precious"
    assert ran.returncode == 0, ran.stderr
    assert (written / "report.html").read_text().startswith("<!")


def test_a_link_in_the_place_of_the_page_is_replaced(written, precious):
    (written / "report.html").symlink_to(precious)
    assert main(["report", str(written), "--html"]) == 0
    assert precious.read_text() == "precious"
    assert not (written / "report.html").is_symlink()


def test_a_page_has_the_mode_of_any_file_of_the_users(written):
    before = os.umask(0o027)
    try:
        assert main(["report", str(written), "--html"]) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((written / "report.html").stat().st_mode) == 0o640


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_file_is_not_replaced_by_a_page(make, written, tmp_path, capsys):
    make(tmp_path / "page.html")
    before = os.lstat(tmp_path / "page.html")
    assert main(["report", str(written), "--html", str(tmp_path / "page.html")]) == 2
    assert "is not a file; give --html the name of one, or - for stdout" in capsys.readouterr().err
    assert os.path.samestat(before, os.lstat(tmp_path / "page.html"))


def in_time(function):
    """What a function returns or raises, unless it hangs."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it hangs"
    return outcome[0]


@pytest.mark.parametrize("planted", ["pipe", "link to a pipe", "directory", "device", "link to a secret"])
def test_a_log_that_is_no_file_is_none_and_holds_nobody_up(planted, written, precious, tmp_path):
    register(str(written))
    log = written / "events.jsonl"
    log.rename(tmp_path / "moved")
    match planted:
        case "pipe":
            os.mkfifo(log)
        case "link to a pipe":
            os.mkfifo(tmp_path / "fifo")
            log.symlink_to(tmp_path / "fifo")
        case "directory":
            log.mkdir()
        case "device":
            log.symlink_to("/dev/zero")
        case "link to a secret":
            log.symlink_to(precious)
    for name in (str(written), str(written.parent), "job7"):
        assert isinstance(in_time(lambda name=name: find_run(name)), InputError)
    assert isinstance(in_time(lambda: read_node(str(written))), InputError)
    for command in ("report", "stacks"):
        assert in_time(lambda command=command: main([command, "job7"])) == 2


def test_a_log_is_looked_at_when_it_is_open_and_not_before(written, monkeypatch):
    """Between a look and an opening by name, its owner can exchange it for a pipe."""
    is_file = os.path.isfile
    os.unlink(written / "events.jsonl")
    os.mkfifo(written / "events.jsonl")
    monkeypatch.setattr(os.path, "isfile", lambda path: str(path).endswith("events.jsonl") or is_file(path))
    assert isinstance(in_time(lambda: read_node(str(written))), InputError)
    assert in_time(lambda: entries.identity_of(RunDirectory(str(written)))) is None


def test_a_log_without_an_end_is_read_up_to_a_limit(written, monkeypatch):
    monkeypatch.setattr(entries, "LOG_MAX_BYTES", 1_000_000)
    with (written / "events.jsonl").open("ab") as file:
        file.truncate(1 << 42)
    run = in_time(lambda: find_run(str(written)))
    assert any("is longer than" in note for note in run.notes)
    assert run.nodes[0].attempts


def open_reader(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return fd


def read_a_line_and_leave(fd):
    """As an agent that takes a request, and ends before it answers."""
    select.select([fd], [], [], 60)
    os.close(fd)


@pytest.mark.root
@pytest.mark.parametrize("command", ["report", "stacks"])
def test_a_directory_of_somebody_else_is_named_in_one_line(command, written, capsys):
    os.chown(written, NOBODY, NOBODY)
    if command == "stacks":
        os.mkfifo(written / "requests")
        threading.Thread(target=read_a_line_and_leave, args=[open_reader(written / "requests")]).start()
    main([command, str(written)])
    err = capsys.readouterr().err.splitlines()
    told = f"holdfast {command}: {str(written)!r} belongs to the user 'nobody', not to you: its content may be forged"
    assert err[0] == told
    assert len([line for line in err if "belongs to" in line]) == 1


def test_ones_own_directory_is_not(written, capsys):
    assert main(["report", str(written)]) == 0
    assert capsys.readouterr().err == ""
