"""Bad input to a subcommand is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--jsn"],
        ["report", "--json", "--html"],
        ["runs", "-n", "x"],
        ["doctor", "--unknown"],
        ["stacks", "--unknown"],
        ["forget"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_that_names_the_command(words):
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"holdfast {words[0]}: error: ")
    assert line.endswith(f"(see holdfast {words[0]} --help)")
