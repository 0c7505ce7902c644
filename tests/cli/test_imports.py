"""What starting a job costs, said in a way that does not depend on the machine: the modules that are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from costly_imports import COSTLY_IMPORTS

COSTLY = {*COSTLY_IMPORTS, "torch", "rich", "uuid", "threading", "pickle", "string", "random", "hashlib"}


def imported_by(code, *words):
    """The modules that are there when `code` has run, as the command with these words."""
    code = f"import sys; sys.argv[1:] = {list(words)!r}; before = set(sys.modules)\n{code}\n"
    code += "print('\\n', *sorted(set(sys.modules) - before), file=sys.stderr)"
    command = [sys.executable, "-I", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stderr.splitlines()[-1].split())


HELP = """
from holdfast.cli.command import main
try:
    main()
except SystemExit as left:
    assert left.code == 0
"""

TO_THE_LAUNCHER = """
from holdfast.cli.command import main
from holdfast.launcher import launching
launched = []
launching.launch_agent = lambda *args: launched.append(args)
assert main() == 0
assert len(launched) == 1
"""


def test_help_imports_nothing_costly():
    modules = imported_by(HELP, "run", "--help")
    assert not modules & COSTLY
    assert "holdfast.cli.parser" in modules
    assert not [name for name in modules if name.startswith(("holdfast.processes", "holdfast.launcher"))]


@pytest.mark.parametrize("options", [[], ["--standalone", "--nproc-per-node", "4", "--tee", "3", "--log-dir", "logs"]])
def test_a_job_comes_to_the_launcher_without_anything_costly(options, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = imported_by(TO_THE_LAUNCHER, "run", *options, script())
    assert not modules & COSTLY
    assert "holdfast.launcher.launching" in modules


def test_the_version_and_the_commands_do_not_even_need_a_parser():
    assert "argparse" not in imported_by(HELP, "--version") | imported_by(HELP, "--help")


@pytest.mark.parametrize("options", [[], ["--rdzv-conf", "join_timeout=60,is_host=true"]])
def test_a_whole_job_imports_none_of_the_heavy_modules(options, tmp_path):
    """Of the agent and its keeper, which writes to the same stderr; the workers' imports are not shown."""
    script = tmp_path / "no_op.py"
    script.write_text("")
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "holdfast", "run", *options, "--nproc-per-node", "2", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "holdfast.agent.local" in imported
    heavy = {
        "asyncio",
        "torch",
        "rich",
        "importlib.metadata",
        "logging",
        "typing",
        "dataclasses",
        "subprocess",
        "socket",
    }
    assert heavy & imported == set()
