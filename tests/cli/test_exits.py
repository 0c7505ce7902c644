from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from holdfast.cli.exits import exit_code
from holdfast.errors import ChildFailedError, InfrastructureError, InputError, PlatformError, ProcessFailure
from holdfast.processes import SignalException


def ending(error):
    def command():
        raise error

    return exit_code(command, "holdfast test")


def test_success_says_nothing(capsys):
    assert exit_code(lambda: "anything", "holdfast test") == 0
    assert capsys.readouterr() == ("", "")


def test_bad_input_is_one_line(capsys):
    assert ending(InputError("--nnodes 'x':\n no")) == 2
    assert capsys.readouterr().err == "holdfast test: error: --nnodes 'x': no\n"


def test_failed_workers_are_explained_as_the_error_does(capsys):
    error = ChildFailedError("train.py", {3: ProcessFailure(3, 12, 17, "")})
    assert ending(error) == 1
    assert capsys.readouterr().err == f"{error}\n"


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_128_and_its_number(received, capsys):
    assert ending(SignalException("got it", received)) == 128 + received
    assert capsys.readouterr().err == f"holdfast test: ended by {received.name}\n"


def test_the_keyboard_is_a_signal_too(capsys):
    assert ending(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "holdfast test: ended by SIGINT\n"


def test_a_fault_of_the_infrastructure_is_named(capsys):
    assert ending(InfrastructureError("node0 is gone")) == 1
    assert capsys.readouterr().err == "holdfast test: InfrastructureError: node0 is gone\n"


@pytest.mark.parametrize("error", [PlatformError("a bug"), ZeroDivisionError("a bug")])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(type(error)):
        ending(error)


def test_leaving_on_purpose_passes():
    with pytest.raises(SystemExit) as left:
        ending(SystemExit(7))
    assert left.value.code == 7


def test_the_code_counts_even_if_nobody_can_be_told(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", None)
    assert ending(InputError("x")) == 2


def shown(tmp_path, **options):
    """The command ``runs``, whose answer names a directory, with another stdout."""
    state = tmp_path / "stäte"
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "holdfast", "runs"]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, check=False, timeout=60, **options)


def test_what_a_terminal_cannot_show_is_escaped(tmp_path):
    done = shown(tmp_path, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"st\xe4te" in done.stdout


def test_a_stdout_that_takes_nothing_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        done = shown(tmp_path, stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"No space left on device" in done.stderr
