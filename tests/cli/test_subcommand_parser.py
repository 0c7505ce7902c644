"""Bad input to a subcommand is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.cli.command import main


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


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
def test_a_wrong_number_of_runs_is_shown_with_what_would_be_right(number, capsys):
    with pytest.raises(SystemExit):
        main(["runs", f"-n{number}"])
    assert f"{number!r}: write a whole number, 1 or more" in capsys.readouterr().err
