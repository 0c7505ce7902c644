"""Modules beside a program are the program's: no process of ours imports them, and the program itself does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ["select", "multiprocessing", "signal", "pickle", "socket", "json", "subprocess", "queue", "struct", "tempfile"]
"""Modules that a program may well have, and that ours are called, too."""

PLANTED = """
import os, sys
with open(os.environ["WITNESS"], "a") as file:
    print(__name__, os.getpid(), sys.argv, file=file)
"""

METHODS = ["spawn", "forkserver", "fork"]
COMMANDS = {
    "the command": [os.path.join(os.path.dirname(sys.executable), "holdfast")],
    "the module": [sys.executable, "-m", "holdfast"],
}


def environment(**added):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "PYTHONSAFEPATH"))}
    return inherited | {name: str(value) for name, value in added.items()}


def run(words, cwd, **added):
    ended = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=environment(TMPDIR=cwd, **added),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def planted(tmp_path):
    """A working directory in which somebody has modules called like the standard library's."""
    directory = tmp_path / "work"
    directory.mkdir()
    for name in NAMES:
        (directory / f"{name}.py").write_text(PLANTED)
    return directory


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_beside_a_script_is_imported_by_us(method, command, planted, tmp_path):
    (planted / "program.py").write_text("import os; os.write(1, f\"{os.environ['RANK']}\\n\".encode())")
    words = [*command, "run", "--nproc-per-node", 2, "--start-method", method, "--run-path", "program.py"]
    out = run(words, planted, WITNESS=tmp_path / "witness")
    assert sorted(out.split()) == ["0", "1"]
    assert not (tmp_path / "witness").exists(), (tmp_path / "witness").read_text()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_nothing_beside_a_command_is_imported_by_us(command, planted, tmp_path):
    (planted / "program.sh").write_text("echo $RANK")
    words = [*command, "run", "--nproc-per-node", 2, "--tee", 3, "--no-python", "sh", "program.sh"]
    out = run(words, planted, WITNESS=tmp_path / "witness")
    assert len(out.split()) == 2
    assert not (tmp_path / "witness").exists(), (tmp_path / "witness").read_text()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_program_gets_its_own_modules(method, tmp_path):
    """Where its directory comes before the standard library, as with python -m. A fork has what its parent has."""
    (tmp_path / "select.py").write_text("OWN = 'the own one'")
    (tmp_path / "program.py").write_text("import select; print(select.OWN)")
    words = [*COMMANDS["the module"], "run", "--start-method", method, "--run-path", "program.py"]
    assert run(words, tmp_path) == "the own one\n"


PARENT = """
import json, multiprocessing, sys
import told
from holdfast.processes import DefaultLogsSpecs, start_processes

def ours(method):
    specs = DefaultLogsSpecs(log_dir="/dev/null")
    return start_processes("set", told.state, {0: ()}, {0: {}}, specs, start_method=method).wait().return_values[0]

if __name__ == "__main__":
    method = sys.argv[1]
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        print(json.dumps([pool.apply(told.state), ours(method)]))
"""

STATE = """
import sys

def state():
    return {"path": sys.path, "argv": sys.argv, "flags": repr(sys.flags), "safe": sys.flags.safe_path}
"""


@pytest.mark.parametrize("way", [["parent.py"], ["-m", "parent"], ["-P", "parent.py"]], ids=" ".join)
@pytest.mark.parametrize("method", METHODS)
def test_functions_have_the_path_that_multiprocessing_gives_them(method, way, tmp_path):
    (tmp_path / "told.py").write_text(STATE)
    (tmp_path / "parent.py").write_text(PARENT)
    theirs, ours = json.loads(run([sys.executable, *way, method], tmp_path, PYTHONPATH=tmp_path))
    assert ours == theirs


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_script_has_the_path_of_the_command_that_started_it(method, command, tmp_path):
    (tmp_path / "program.py").write_text("import json, sys; print(json.dumps(sys.path))")
    path = json.loads(run([*command, "run", "--start-method", method, "--run-path", "program.py"], tmp_path))
    first = str(tmp_path) if "-m" in command else os.path.dirname(command[0])
    bare = json.loads(run([sys.executable, "-P", "-c", "import json, sys; print(json.dumps(sys.path))"], tmp_path))
    assert path == [first, *bare]


def test_the_process_that_revokes_a_lease_takes_nothing_from_beside_a_program(planted, tmp_path):
    from holdfast.coordination.last_will import command

    root = Path(__file__).parent.parent.parent / "src"
    words = command([str(planted), str(root), *sys.path])
    words[words.index("-c") + 1] = words[words.index("-c") + 1].replace("main()", "import asyncio, select, ssl")
    run([*words, "0"], planted, WITNESS=tmp_path / "witness")
    assert not (tmp_path / "witness").exists(), (tmp_path / "witness").read_text()
