"""What one process of a set is, and how it becomes its program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.processes.launch import Becoming, LastWill, Launch

BEGIN = """
import os, signal, sys
from holdfast.processes.launch import LastWill, append_to, become_will, call, keep_only
"""


def run(program, *args, **options):
    """Run a program in a process of its own, since it changes its descriptors, signals or environment."""
    command = [sys.executable, "-c", BEGIN + program, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def test_a_launch_inherits_its_streams_and_no_descriptors_unless_told():
    launch = Launch(3, ["true"], {"A": "b"})
    assert (launch.rank, launch.program, launch.env) == (3, ["true"], {"A": "b"})
    assert (launch.stdout, launch.stderr, launch.fds, launch.in_process) == ("", "", (), False)


def test_becoming_is_no_error_that_programs_catch():
    launch = Launch(0, ["true"], {})
    assert Becoming(launch).launch is launch
    assert not issubclass(Becoming, Exception)


# A function as a program


def test_a_function_has_the_environment_and_the_signals_of_an_interpreter():
    ran = run(
        """
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def program():
    assert dict(os.environ) == {"ONLY": "this"}, os.environ
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    return 7
sys.exit(call(program, {"ONLY": "this"}))
"""
    )
    assert (ran.returncode, ran.stderr) == (7, "")


@pytest.mark.parametrize("error", ["ValueError('the words')", "KeyboardInterrupt('the words')"])
def test_an_error_of_a_function_is_shown_and_exit_code_1(error):
    ran = run(f"def program(): raise {error}\nos._exit(call(program, {{}}))")
    assert ran.returncode == 1
    assert "the words" in ran.stderr.splitlines()[-1]
    assert "in program" in ran.stderr


# Descriptors


def test_a_stream_appends_to_a_file(tmp_path):
    (tmp_path / "log").write_text("before\n")
    program = """
os.umask(0o022)
for path in sys.argv[1:]:
    append_to(path, 1)
    os.write(1, b"words\\n")
os.execvp("echo", ["echo", "inherited"])
"""
    ran = run(program, tmp_path / "log", tmp_path / "new")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert (tmp_path / "log").read_text() == "before\nwords\n"
    assert (tmp_path / "new").read_text() == "words\ninherited\n"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o644


def test_other_descriptors_are_closed_and_kept_ones_are_not_inherited():
    ran = run("""
kept, other = os.pipe()
os.set_inheritable(kept, True)
keep_only({kept})
assert not os.get_inheritable(kept)
try:
    os.fstat(other)
except OSError:
    print(all(os.get_inheritable(fd) for fd in range(3)))
""")
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


# A last will

EXECUTOR = """
import os, sys
paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
links = {os.readlink(path) for path in paths if os.path.lexists(path)}
with open(int(sys.argv[-1])) as file:
    content = file.read()
with open(sys.argv[1], "w") as out:
    print(content, sorted(links), file=out)
"""


def test_a_will_becomes_its_command_with_its_file_and_nothing_else(tmp_path):
    program = """
path, executor = sys.argv[1:]
secret = os.memfd_create("secret", 0)  # without close-on-exec
fd = os.memfd_create("the-last-will")
os.pwrite(fd, b"content", 0)
become_will(LastWill([sys.executable, "-I", "-c", executor, path], fd))
"""
    ran = run(program, tmp_path / "out", EXECUTOR)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    will = "/memfd:the-last-will (deleted)"
    assert (tmp_path / "out").read_text() == f"content {sorted([os.devnull, will])}\n"


def test_a_will_that_cannot_be_executed_is_not_carried_out():
    program = """
fd = os.memfd_create("the-last-will")
become_will(LastWill(["/no/such/command"], fd))
os._exit(5)
"""
    assert run(program).returncode == 5


def test_a_will_is_a_command_and_a_file():
    will = LastWill(["command", "argument"], 7)
    assert (will.command, will.fd) == (["command", "argument"], 7)
