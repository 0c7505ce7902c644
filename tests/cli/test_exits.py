from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from holdfast.cli.command import COMMANDS
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


def test_an_interruption_while_a_class_is_made_is_one_too(capsys):
    class Interrupted:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    assert exit_code(lambda: type("Owner", (), {"field": Interrupted()}), "holdfast test") == 130
    assert capsys.readouterr().err == "holdfast test: ended by SIGINT\n"


def out_of_files():
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def caused_by(cause):
    error = InputError("cannot start python")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [out_of_files(), caused_by(out_of_files()), ImportError(f"x.so: cannot open: {os.strerror(errno.EMFILE)}")],
    ids=["as it is", "as a cause", "in an import"],
)
def test_a_limit_of_open_files_that_is_too_low_is_one_line(error, capfd):
    assert ending(error) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("holdfast test: too many open files: ")
    assert line.endswith("ulimit -n 65536")


@pytest.mark.parametrize("limit", [8, 10, 12])
def test_a_job_with_too_few_open_files_has_no_traceback(limit, holdfast_with_files):
    """Its descriptors run out in an import, or when a worker is started."""
    done = holdfast_with_files(limit)
    assert (done.returncode, done.stdout) == (1, b"")
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"holdfast run: too many open files: ")


@pytest.fixture
def holdfast_with_files(script):
    """Runs a job with few open files."""

    def run(limit):
        command = [sys.executable, "-m", "holdfast", "run", script()]
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # noqa: E731 - for one call
        return subprocess.run(command, capture_output=True, check=False, timeout=60, preexec_fn=few)

    return run


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


@pytest.mark.parametrize(
    "words", [["--help"], *([name, "--help"] for name in COMMANDS), ["doctor", "--json"]], ids=" ".join
)
def test_every_command_says_that_stdout_takes_nothing(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "holdfast", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "holdfast: cannot write to stdout: No space left on device\n")


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["runs", "--json"]], ids=" ".join)
def test_a_reader_that_has_left_is_no_failure(words):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
