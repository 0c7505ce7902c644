from __future__ import annotations

import os
import subprocess
import sys

import pytest

import holdfast
from holdfast.cli.command import COMMANDS, main


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_lists_the_commands(word, capsys):
    assert main([word]) == 0
    out, err = capsys.readouterr()
    assert not err
    for name, (_, _, summary) in COMMANDS.items():
        assert f"  {name:6}  {summary}\n" in out


COMMAND_NAMES = "run, exec, report, runs, stacks, doctor, forget, token, alias"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["--verison"], "unknown command '--verison'; did you mean '--version'?"),
        (["xyz"], f"unknown command 'xyz'; choose from {COMMAND_NAMES}"),
        ([], f"no command given; choose from {COMMAND_NAMES}"),
    ],
)
def test_an_unknown_command_is_one_line(words, problem, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err == f"holdfast: error: {problem} (see holdfast --help)\n"


@pytest.mark.parametrize("words", [["--nproc-per-node", "2", "train.py"], ["train.py"], ["run.py"], [__file__]])
def test_who_forgot_run_is_reminded_of_it(words, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert (
        err
        == f"holdfast: error: unknown command {words[0]!r}; did you mean 'holdfast run ...'? (see holdfast --help)\n"
    )


def test_what_follows_run_is_for_the_job(holdfast, script):
    ended = holdfast("run", script("import sys; print(sys.argv[1:])"), "--help", "run")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "['--help', 'run']\n", "")


@pytest.mark.parametrize("words", [["run", "--help"], ["--help"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_left_is_no_news(words, unbuffered):
    """The reader is gone before the first word, whether that is written at once or when the interpreter ends."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


INTERRUPTED_IN_AN_IMPORT = """
import os, signal, sys

class Interruption:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interruption())
from holdfast.cli.command import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("module", "last_words"),
    [("holdfast.cli.exits", ""), ("holdfast.cli.running", "holdfast run: ended by SIGINT\n")],
)
def test_an_interruption_of_an_import_shows_no_traceback(module, last_words):
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IN_AN_IMPORT, module, "run", "train.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", last_words)
