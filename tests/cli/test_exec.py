"""``holdfast exec``: the program that it becomes, and whose launcher that program finds.

`torch` is a stand-in here: packages with torch's names, which say that they are torch's. tests/frameworks has the real
one.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import exec as command
from holdfast.compat.homes import HOMES, PARTIAL

STARTUP = Path(command.DIRECTORY) / "sitecustomize.py"

WHOSE = "import torch.distributed.{0} as m; print(getattr(m, 'WHOSE', 'holdfast'))"
RUN, TIMER, UTILS = (WHOSE.format(name) for name in ("run", "elastic.timer.api", "elastic.utils.store"))


@pytest.fixture
def stand_in(tmp_path):
    """A directory with a package torch, all of whose modules say that they are torch's."""
    top = tmp_path / "packages"
    for name in ("", "distributed", "distributed.elastic.utils.store", *(f"distributed.{name}" for name in HOMES)):
        place = top.joinpath("torch", *filter(None, name.split(".")))
        place.mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text("WHOSE = 'torch'\n")
    (top / "torch/distributed/elastic/utils/__init__.py").write_text("")
    (top / "torch/distributed/run").joinpath("__main__.py").write_text("print('torch')\n")
    return str(top)


@pytest.fixture
def below(holdfast, stand_in):
    """Runs a command below ``holdfast exec`` and returns what it printed."""

    def run(*words, **environment):
        ended = holdfast("exec", *words, **{"PYTHONPATH": stand_in, **environment})
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    return run


class TestWhoseLauncherItIs:
    @pytest.mark.parametrize("name", HOMES)
    def test_every_module_of_the_table_is_ours_but_those_with_few_names(self, below, name):
        whose = "torch" if name in PARTIAL else "holdfast"
        assert below(sys.executable, "-c", WHOSE.format(name)) == f"{whose}\n"

    def test_what_the_table_does_not_have_is_torchs_below_our_packages(self, below):
        assert below(sys.executable, "-c", f"{TIMER}\n{UTILS}") == "holdfast\ntorch\n"

    def test_torch_itself_is_not_touched_and_not_imported_for_this(self, below):
        code = "import sys; print('torch' in sys.modules); import torch.distributed as d; print(d.WHOSE)"
        assert below(sys.executable, "-c", code) == "False\ntorch\n"

    @pytest.mark.parametrize("dashes", [[], ["--"]])
    def test_a_module_by_its_name(self, below, dashes):
        assert below(*dashes, sys.executable, "-m", "torch.distributed.run", "--version").startswith("holdfast ")

    def test_children_and_their_children(self, below, script):
        child = script(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {RUN!r}], check=True)")
        assert below("sh", "-c", f"{sys.executable} {child}; exit") == "holdfast\n"

    def test_the_workers_of_a_job(self, below, script):
        assert below(sys.executable, "-m", "torch.distributed.run", script(RUN)) == "holdfast\n"

    def test_it_ends_where_a_program_asks_for_that(self, below):
        assert below("env", "HOLDFAST_EXEC=0", sys.executable, "-c", RUN) == "torch\n"

    def test_below_itself(self, below):
        words = [sys.executable, "-m", "holdfast", "exec", sys.executable, "-c"]
        assert below(*words, f"{RUN}; import os; print(os.environ['PYTHONPATH'].count('startup'))") == "holdfast\n1\n"

    def test_an_interpreter_without_holdfast_says_so_and_has_torchs(self, holdfast, stand_in):
        code = f"import sys; sys.modules['holdfast.compat'] = None; {RUN}; {TIMER}"
        ended = holdfast("exec", sys.executable, "-c", code, PYTHONPATH=stand_in)
        assert (ended.returncode, ended.stdout) == (0, "torch\ntorch\n")
        assert ended.stderr == (
            f"holdfast exec: torch's own launcher is used: {sys.executable} cannot import holdfast "
            "(ModuleNotFoundError); install holdfast for it\n"
        )


class TestWhatAProgramSees:
    def test_its_path_is_its_own(self, below, stand_in):
        code = "import sys; print(sys.path[1], sum('startup' in entry for entry in sys.path))"
        assert below(sys.executable, "-c", code) == f"{stand_in} 0\n"

    def test_a_sitecustomize_of_its_own(self, below, tmp_path):
        (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
        code = "import sys; print(sys.modules['sitecustomize'].__file__)"
        shown = below(sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
        assert shown.endswith(f"mine\n{tmp_path}/sitecustomize.py\n")

    def test_without_one_there_is_none(self, below):
        shown = below(sys.executable, "-c", "import sys; print(*sys.modules)").split()
        found = subprocess.run(
            [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
        )
        assert set(shown) - {"sitecustomize"} == set(found.stdout.split()) - {"sitecustomize"}
        assert not [name for name in shown if name.startswith("holdfast")]

    @pytest.mark.parametrize("path", [None, ""])
    def test_without_a_path_it_has_none(self, path):
        env = {} if path is None else {"PYTHONPATH": path}
        assert command.with_hook(env) == {"PYTHONPATH": command.DIRECTORY, "HOLDFAST_EXEC": "1"}

    def test_an_empty_entry_stays_the_working_directory(self):
        assert command.with_hook({"PYTHONPATH": "/a:"})["PYTHONPATH"] == f"{command.DIRECTORY}:/a:"

    def test_a_directory_that_a_path_cannot_hold_is_refused(self, monkeypatch):
        monkeypatch.setattr(command, "DIRECTORY", "/with:colon")
        with pytest.raises(ValueError, match="cannot hold a directory with a colon"):
            command.with_hook({})

    def test_the_code_runs_in_old_interpreters_and_hides_no_module(self):
        ast.parse(STARTUP.read_text(), feature_version=(3, 8))
        assert {path.name for path in STARTUP.parent.iterdir()} - {"__pycache__"} == {"sitecustomize.py"}


class TestTheCommand:
    def test_its_arguments_and_its_exit_code_are_passed_on(self, holdfast):
        ended = holdfast("exec", "--", "sh", "-c", 'echo "$@"; exit 7', "sh", "--", "-x", "--help")
        assert (ended.returncode, ended.stdout) == (7, "-- -x --help\n")

    def test_it_is_the_same_process_and_a_signal_reaches_it(self, tmp_path):
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        words = [sys.executable, "-m", "holdfast", "exec", "sh", "-c", f"echo $$ > {fifo}; exec cat {fifo}"]
        with subprocess.Popen(words) as started:
            assert int(fifo.read_text()) == started.pid
            started.terminate()
            assert started.wait() == -signal.SIGTERM

    def test_it_does_not_ignore_what_python_ignores(self, holdfast):
        ended = holdfast("exec", "grep", "SigIgn", "/proc/self/status")
        plain = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True)
        ignored = int(ended.stdout.split()[1], 16)
        assert ignored & ~int(plain.stdout.split()[1], 16) == 0
        assert not ignored >> (signal.SIGPIPE - 1) & 1

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            ([], 2, "no command given; write it after exec, as in: holdfast exec python train.py (see holdfast exec"),
            (["--"], 2, "no command given; "),
            (["--nonsense", "x"], 2, "unrecognized arguments: --nonsense"),
            (["no-such-command"], 127, "'no-such-command': no such command\n"),
            (["train.py"], 127, "'train.py': no such command; did you mean 'python train.py'?\n"),
            ([""], 127, "''"),
            (["/dev/null"], 126, "'/dev/null': Permission denied\n"),
            (["/"], 126, "'/': "),
        ],
    )
    def test_what_cannot_be_run_is_one_line(self, holdfast, words, code, said):
        ended = holdfast("exec", *words)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert ended.stderr.startswith(f"holdfast exec: error: {said}")
        assert ended.stderr.count("\n") == 1

    def test_help(self, holdfast):
        ended = holdfast("exec", "--help")
        assert ended.returncode == 0
        assert "holdfast exec accelerate launch" in ended.stdout
