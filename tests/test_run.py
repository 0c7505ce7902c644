"""``python -m holdfast.run`` is what ``python -m torch.distributed.run`` is."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast


def ran(module, *words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
    )


def test_it_takes_the_arguments_of_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, sys; os.write(1, f'{os.environ[\"RANK\"]} {sys.argv[1:]}\\n'.encode())")
    ended = ran("holdfast.run", "--nproc_per_node=2", "--standalone", script, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(ended.stdout.splitlines()) == ["0 ['--version']", "1 ['--version']"]


def test_the_version_says_that_it_is_holdfast():
    assert ran("holdfast.run", "--version").stdout == f"holdfast {holdfast.__version__}\n"


@pytest.mark.parametrize("words", [[], ["--nnodes", "x", "train.py"]])
def test_bad_input_is_one_line(words):
    ended = ran("holdfast.run", *words)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("holdfast run: error: ")


def test_modules_beside_the_program_are_the_programs(tmp_path):
    (tmp_path / "select.py").write_text("1 / 0\n")
    assert ran("holdfast.run", "--version", cwd=tmp_path).returncode == 0


def test_it_takes_no_name_from_the_command_line_package():
    assert holdfast.cli.run.__module__ == "holdfast.cli.running"
