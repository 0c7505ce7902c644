"""How our first lines come into a Python program: the environment, and the programs that see it."""

from __future__ import annotations

import ast
import os
import sys

import pytest

from holdfast.worker import injection


def test_an_environment_with_and_without_a_path():
    directory = injection.DIRECTORY
    assert injection.with_startup({}) == {"PYTHONPATH": directory, "HOLDFAST_STARTUP": "unset"}
    assert injection.with_startup({"PYTHONPATH": ""}) == {"PYTHONPATH": directory, "HOLDFAST_STARTUP": "empty"}
    once = injection.with_startup({"PYTHONPATH": "/a"})
    assert once == {"PYTHONPATH": f"{directory}:/a", "HOLDFAST_STARTUP": "set"}
    assert injection.with_startup(once) == once


def test_the_process_that_is_meant_is_named():
    assert injection.for_this_process({"A": "b"}) == {"A": "b"}
    env = injection.for_this_process({"HOLDFAST_STARTUP": "set"})
    assert env["HOLDFAST_WORKER_PID"] == str(os.getpid())


@pytest.mark.parametrize(
    "name", ["startup/sitecustomize.py", "hooks.py", "own_imports.py", "own_store.py", "good_end.py"]
)
def test_what_runs_in_any_interpreter_is_written_for_old_ones(name):
    with open(os.path.join(os.path.dirname(injection.DIRECTORY), name)) as file:
        ast.parse(file.read(), feature_version=(3, 8))


def test_the_directory_has_nothing_that_could_hide_a_module():
    assert set(os.listdir(injection.DIRECTORY)) - {"__pycache__"} == {"sitecustomize.py"}


def test_a_directory_that_a_path_cannot_hold_is_left_out(monkeypatch):
    monkeypatch.setattr(injection, "DIRECTORY", "/with:colon")
    assert injection.with_startup({"A": "b"}) == {"A": "b"}


def test_variables_without_their_path_are_no_hooks():
    """A program may have set the path anew."""
    env = injection.with_startup({"HOLDFAST_STARTUP": "set", "PYTHONPATH": "/a"})
    assert env["PYTHONPATH"] == f"{injection.DIRECTORY}:/a"


@pytest.mark.parametrize("options", ["-I", "-E", "-S"])
def test_options_that_keep_python_from_our_code_do_no_harm(programs, options):
    ended = programs.worker(options, "-c", "print('runs'); 1 / 0")
    assert (ended.code, ended.stdout) == (1, "runs\n")
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_the_hooks_can_be_switched_off(programs):
    source = "import os, sys; print('faulthandler' in sys.modules, os.environ.get('PYTHONPATH')); 1 / 0"
    ended = programs.worker("-c", source, HOLDFAST_HOOKS="0")
    assert (ended.code, ended.stdout, ended.error) == (1, "False None\n", None)


class TestProgramsThatAreNotPythonAtOnce:
    def test_a_script_that_becomes_python(self, programs):
        ended = programs.worker("-c", f"exec {sys.executable} -c '1 / 0'", command="sh")
        assert ended.message == "ZeroDivisionError: division by zero"

    def test_a_shebang(self, programs):
        script = programs.file("program", f"#!{sys.executable}\n1 / 0\n")
        os.chmod(script, 0o755)
        ended = programs.worker(command=script)
        assert ended.message == "ZeroDivisionError: division by zero"

    def test_a_python_that_a_script_starts_is_not_the_worker(self, programs):
        show = 'import os, sys; print([n for n in os.environ if n in ("HOLDFAST_STARTUP", "PYTHONPATH")]); 1 / 0'
        ended = programs.worker("-c", f"{sys.executable} -c '{show}'; exit 7", command="sh")
        assert (ended.code, ended.stdout, ended.error) == (7, "[]\n", None)
