"""``holdfast alias``: a torchrun that is holdfast, and files that it leaves alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

import holdfast as package
from holdfast.cli.command import main

FOREIGN = "#!/bin/sh\necho torch\n"


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "a directory's own"
    place.mkdir()
    return place


def called(path, *words, **options):
    return subprocess.run([path, *words], capture_output=True, text=True, timeout=60, check=False, **options)


def test_its_version_says_that_it_is_holdfast(place, capsys):
    assert main(["alias", str(place)]) == 0
    alias = place / "torchrun"
    out = capsys.readouterr().out
    assert out.startswith(f"{alias} runs holdfast with {sys.executable}\nput {place} first in PATH: torchrun is ")
    assert called(alias, "--version").stdout == f"holdfast {package.__version__}\n"
    assert [path.name for path in place.iterdir()] == ["torchrun"]


def test_nothing_is_left_to_do_if_it_is_the_one_that_is_found(place, capsys, monkeypatch):
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    assert main(["alias", str(place)]) == 0
    assert capsys.readouterr().out == f"{place}/torchrun runs holdfast with {sys.executable}\n"


def test_it_runs_a_job_as_torchrun_does(place, script):
    assert main(["alias", str(place)]) == 0
    path = script("import os, sys; os.write(1, (os.environ['RANK'] + sys.argv[1]).encode()); sys.exit(3)")
    ended = called(place / "torchrun", "--nproc_per_node", "1", path, "a  b")
    assert (ended.returncode, ended.stdout) == (1, "0a  b")
    assert "exitcode  : 3" in ended.stderr


def test_it_is_the_interpreter_and_no_shell_that_runs(place):
    assert main(["alias", str(place)]) == 0
    assert (place / "torchrun").read_text().splitlines()[2].startswith("exec ")


def test_everybody_may_run_it_and_only_its_owner_change_it(place):
    before = os.umask(0o022)
    try:
        assert main(["alias", str(place)]) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((place / "torchrun").stat().st_mode) == 0o755


def test_its_own_file_is_replaced(place):
    assert main(["alias", str(place)]) == 0
    text = (place / "torchrun").read_text()
    (place / "torchrun").write_text(text.replace(sys.executable, "/old/python"))
    assert main(["alias", str(place)]) == 0
    assert (place / "torchrun").read_text() == text


@pytest.mark.parametrize("there", ["file", "link", "broken link", "directory", "empty"])
def test_what_it_has_not_made_is_left_alone(place, there, capsys):
    path = place / "torchrun"
    other = place / "other"
    other.write_text(FOREIGN)
    if there == "directory":
        path.mkdir()
    elif there == "broken link":
        path.symlink_to(place / "nowhere")
    elif there == "link":
        path.symlink_to(other)
    else:
        path.write_text(FOREIGN if there == "file" else "")
    assert main(["alias", str(place)]) == 2
    said = f"{str(path)!r} exists, and holdfast alias has not made it; --force replaces it"
    assert capsys.readouterr().err == f"holdfast alias: error: {said}\n"
    if there == "directory":
        assert main(["alias", "--force", str(place)]) == 2
        assert "is not a file; remove it first" in capsys.readouterr().err
        return
    assert main(["alias", "--force", str(place)]) == 0
    assert not path.is_symlink()
    assert b"holdfast" in path.read_bytes()
    assert other.read_text() == FOREIGN, "a link is replaced, not followed"


def test_no_directory_is_made(tmp_path, capsys):
    assert main(["alias", str(tmp_path / "missing")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "is not a directory; make it, or choose one that is in PATH" in err
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_one_line(capsys):
    assert main(["alias", "/proc/self"]) == 2
    assert capsys.readouterr().err.startswith("holdfast alias: error: '/proc/self/torchrun' cannot be written: ")
