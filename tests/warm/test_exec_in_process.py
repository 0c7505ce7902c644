"""A program in a process that was something else before: as if an interpreter had been started with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.warm.exec_in_process import Program

AS_ONE = """
import sys
sys.path.pop(0)
words = sys.argv[1:]
from holdfast.warm.exec_in_process import Program, become
run = become(Program(words), words, None)
run()
"""

SHOWS = "import sys; print(__name__, sys.argv, sys.path[0], __file__, 'holdfast' in sys.modules)"


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Runs words by an interpreter of its own, and in a process that becomes it: they must be the same."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        ended = [
            subprocess.run([sys.executable, *start, *words], capture_output=True, text=True, check=False, timeout=60)
            for start in ((), ("-c", AS_ONE))
        ]
        first, second = ((each.returncode, each.stdout, each.stderr) for each in ended)
        assert second == first
        return first

    return run


def test_a_script(both, tmp_path):
    (tmp_path / "app.py").write_text(SHOWS)
    code, out, _ = both("app.py", "-x", "1")
    assert code == 0
    assert out.startswith("__main__ ['app.py', '-x', '1']")


def test_a_module_and_a_directory(both, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(SHOWS)
    assert both("-m", "package", "x")[0] == 0
    assert both("package", "x")[0] == 0


@pytest.mark.parametrize(
    ("source", "code"),
    [("import sys; sys.exit(3)", 3), ("def f():\n    1 / 0\nf()", 1), ("def f(:", 1), ("raise SystemExit('no')", 1)],
)
def test_ends(both, tmp_path, source, code):
    (tmp_path / "app.py").write_text(source)
    assert both("app.py")[0] == code


def test_a_script_that_is_not_there(both):
    assert both("nowhere.py")[0] == 2


def test_words():
    program = Program(["-u", "-m", "package.train", "-x"])
    assert (program.name, program.is_module, program.arguments, program.path) == ("package.train", True, ["-x"], "")
    assert Program([]).directory == ""
