"""The imports of a template, each in an interpreter of its own."""

from __future__ import annotations

import pytest
from fresh_python import run_fresh

PREPARE = """
import os, sys
from holdfast.warm.exec_in_process import Program
from holdfast.warm.importing import Imports
from holdfast.warm.safety import Safety

told = []
def imports(words, modules=None, source=None):
    return Imports(Program(words), modules=modules, source=source, env=dict(os.environ),
                   modules_of_python=frozenset(sys.modules), tell=told.append)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(code):
        ended = run_fresh(PREPARE + code)
        assert (ended.stderr, ended.returncode) == ("", 0)
        return ended.stdout

    return run


def test_the_imports_of_a_program_and_not_its_own_modules(run, tmp_path):
    (tmp_path / "mine.py").write_text("print('mine')")
    (tmp_path / "train.py").write_text("import colorsys\nimport mine\nimport nowhere_at_all\n")
    run("""
of_program = imports(["train.py"])
assert of_program.run(Safety()) == ""
assert "colorsys" in sys.modules and "mine" not in sys.modules
assert told == ["colorsys"], told
""")


def test_the_modules_of_a_list(run):
    run("""
assert imports([], ["colorsys", "nowhere_at_all", "wave"]).run(Safety()) == ""
assert told == ["colorsys", "nowhere_at_all", "wave"], told
assert {"colorsys", "wave"} <= sys.modules.keys()
""")


def test_an_import_that_forbids_to_fork_is_named(run, tmp_path):
    (tmp_path / "starts_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    run("""
sys.path.insert(0, os.getcwd())
problem = imports([], ["colorsys", "starts_thread"]).run(Safety())
assert problem.startswith("import starts_thread "), problem
""")


def test_a_variable_that_the_program_sets_before_an_import(run, tmp_path):
    (tmp_path / "train.py").write_text("import os\nos.environ['LEVEL'] = '3'\nimport colorsys\n")
    run("""
of_program = imports(["train.py"])
of_program.run(Safety())
assert os.environ["LEVEL"] == "3" and of_program.env["LEVEL"] == "3"
""")


def test_a_file_that_changes_is_noticed(run, tmp_path):
    module = tmp_path / "library_of_test.py"
    module.write_text("")
    run(f"""
sys.path.insert(0, os.getcwd())
os.utime({str(module)!r}, (1, 1))
of_list = imports([], ["library_of_test"])
of_list.run(Safety())
of_list.note_files()
assert of_list.changed() == ""
os.utime({str(module)!r}, (2, 2))
assert of_list.changed() == {str(module)!r}
""")


def test_a_program_that_changes_counts_if_its_imports_may_notice(run, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import colorsys\n")
    run(f"""
def write(text):
    with open({str(script)!r}, "w") as file:
        file.write(text)
of_program = imports(["train.py"])
of_program.run(Safety())
of_program.note_files()
assert of_program.changed() == ""
write("import colorsys\\nprint(1, 2, 3)\\n")
assert of_program.changed() == ""
write("import os\\nos.environ['LEVEL'] = '3'\\nimport colorsys\\n")
assert of_program.changed().endswith("train.py")
""")


def test_a_module_of_the_program_that_hides_an_imported_one(run, tmp_path):
    (tmp_path / "train.py").write_text("import colorsys")
    run("""
of_program = imports(["train.py"])
of_program.run(Safety())
assert of_program.hidden() == ""
open("colorsys.py", "w").close()
assert of_program.hidden().endswith("colorsys.py"), of_program.hidden()
""")
