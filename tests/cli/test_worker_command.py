from __future__ import annotations

import importlib.machinery
import os
import sys

import pytest

from holdfast.cli import parse_args, run_script_path
from holdfast.cli.worker_command import worker_command
from holdfast.errors import InputError


def command(*words):
    return worker_command(parse_args(words))


def refused(*words):
    with pytest.raises(InputError) as raised:
        command(*words)
    return str(raised.value)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestWhatIsRun:
    def test_a_script(self, script):
        path = script()
        assert command(path, "--lr", "1") == (sys.executable, ["-u", path, "--lr", "1"])

    def test_a_module(self, here):
        """Whether its package holds it is for the worker to say: to look for it would be to import the package here."""
        (here / "package_of_test").mkdir()
        (here / "package_of_test" / "__init__.py").write_text("raise ValueError('it is not imported here')")
        for name in ("package_of_test.train", "json.tool", "this", "sys", "module_${local_rank}"):
            assert command("-m", name, "-x") == (sys.executable, ["-u", "-m", name, "-x"])

    def test_a_module_that_only_a_finder_of_the_installation_knows(self, monkeypatch):
        class Finder:
            def find_spec(self, name, path, target=None):
                return importlib.machinery.ModuleSpec(name, None) if name == "editable_of_test" else None

        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
        assert command("-m", "editable_of_test")[1] == ["-u", "-m", "editable_of_test"]

    def test_a_module_of_another_interpreter(self, monkeypatch):
        monkeypatch.setenv("PYTHON_EXEC", "/bin/sh")
        assert command("-m", "only_there") == ("/bin/sh", ["-u", "-m", "only_there"])

    def test_a_program(self):
        assert command("--no-python", "sh", "-c", "true") == ("sh", ["-c", "true"])

    def test_a_function_in_place_of_a_program(self, script):
        path = script()
        assert command("--run-path", "--no-python", path, "a") == (run_script_path, [path, "a"])

    def test_another_interpreter(self, monkeypatch):
        monkeypatch.setenv("PYTHON_EXEC", "/bin/sh")
        assert command("only there.py") == ("/bin/sh", ["-u", "only there.py"])

    @pytest.mark.parametrize("name", ["-", "train_${local_rank}.py"])
    def test_what_cannot_be_judged_from_here(self, name):
        assert command(name) == (sys.executable, ["-u", name])

    def test_a_directory_with_a_main_program(self, here):
        (here / "app").mkdir()
        (here / "app" / "__main__.py").touch()
        assert command("app") == (sys.executable, ["-u", "app"])


class TestRefusals:
    def test_a_missing_script(self, here):
        assert refused("nowhere.py") == f"script 'nowhere.py': no such file (from {here})"
        assert refused("--run-path", "nowhere.py") == f"script 'nowhere.py': no such file (from {here})"

    def test_a_directory(self, here):
        (here / "app").mkdir()
        assert refused("app").startswith("script 'app': a directory without __main__.py")

    def test_a_script_that_cannot_be_read(self, script, monkeypatch):
        monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.R_OK)
        path = script()
        assert refused(path) == f"script {path!r}: not readable by this user"

    def test_a_missing_module(self, here):
        assert refused("-m", "nosuch_of_test.train").startswith(
            f"-m 'nosuch_of_test.train': there is no such module (from {here}, or installed for {sys.executable}); "
        )

    def test_a_package_that_cannot_be_run(self, here):
        for package in ("plain_of_test", "plain_of_test/inner", "runnable_of_test"):
            (here / package).mkdir()
            (here / package / "__init__.py").write_text("raise ValueError('it is not imported here')")
        (here / "runnable_of_test" / "__main__.py").touch()
        for name in ("plain_of_test", "plain_of_test.inner", "email"):
            assert refused("-m", name) == (
                f"-m {name!r}: a package without __main__.py; name a module of the package, such as -m {name}.train"
            )
        assert command("-m", "runnable_of_test")[1] == ["-u", "-m", "runnable_of_test"]

    def test_a_file_in_the_place_of_a_module(self, here):
        (here / "train_of_test.py").touch()
        assert refused("-m", "train_of_test.py") == (
            "-m 'train_of_test.py': train_of_test is a module and not a package; write -m train_of_test"
        )

    def test_a_module_without_python(self):
        assert refused("--no-python", "-m", "package") == (
            "--no-python with --module 'package': a module needs Python; remove one of the two"
        )

    def test_a_missing_program(self, here, script):
        script(name="program")
        assert refused("--no-python", "program").startswith("script 'program': no such program (not in PATH")
        assert refused("--no-python", "./nothing") == f"script './nothing': no such program (from {here})"

    def test_a_program_that_is_none(self, here, script):
        script(name="program")
        assert refused("--no-python", "./program").startswith("script './program': ./program not executable")
        assert refused("--no-python", str(here)).endswith(f"no such program (from {here})")

    def test_a_missing_interpreter(self, monkeypatch, script):
        monkeypatch.setenv("PYTHON_EXEC", "/nowhere/python")
        assert refused(script()).startswith("PYTHON_EXEC='/nowhere/python': no such program")


def test_a_script_in_this_interpreter_sees_what_it_would_otherwise(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["before"])
    path = script("import sys; print(__name__, __file__, sys.argv)")
    run_script_path(path, "a", "b")
    assert capsys.readouterr().out == f"__main__ {path} {[path, 'a', 'b']}\n"
