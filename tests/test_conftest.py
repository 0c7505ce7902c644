"""The tests do not depend on who starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_S = 250
WORKERS_AND_SIGNALS = "tests/worker/test_sitecustomize.py::TestTheStateAProgramBeginsWith::test_a_script"
"""A test that compares, among others, which signals a worker ignores with those that a plain interpreter does."""


@pytest.mark.parametrize("ignored", ["INT QUIT", "HUP", "TERM"], ids=["background job", "nohup", "wrapper"])
def test_signals_that_were_ignored_at_the_start_are_not_for_the_tests(ignored):
    pytest_command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", WORKERS_AND_SIGNALS)
    ended = subprocess.run(
        ["sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh", *pytest_command],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
