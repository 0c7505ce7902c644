"""Every test runs on one lane and on no other, and what goes wrong on one of them is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LANES = Path(__file__).parent / "support" / "lanes.py"


@pytest.fixture
def suite(tmp_path):
    """Makes suites of test files by name, and runs them on two lanes."""
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tests" / "part").mkdir(parents=True)

    def run(**sources):
        for name, source in sources.items():
            (tmp_path / "tests" / "part" / f"test_{name}.py").write_text(source)
        environment = {**os.environ, "PYTEST_ADDOPTS": "-p no:hypothesispytest"}
        return subprocess.run(
            [sys.executable, LANES, "--lanes", "2", "-q"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def test_every_test_runs_once(suite, tmp_path):
    note = f"def test_it():\n    open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + chr(10))\n"
    ran = suite(**{f"number_{number}": note for number in range(9)})
    assert ran.returncode == 0, ran.stdout
    assert "2 lanes: 9 passed" in ran.stdout
    assert len((tmp_path / "ran").read_text().splitlines()) == 9


def test_a_failure_on_one_lane_is_the_result(suite):
    ran = suite(good="def test_it(): pass", bad="def test_it(): assert not 'well'")
    assert ran.returncode == 1
    assert "assert not 'well'" in ran.stdout
    assert "2 lanes: 1 failed, 1 passed" in ran.stdout


def test_a_lane_that_breaks_down_is_told_of(suite):
    ran = suite(good="def test_it(): pass", deadly="import os\ndef test_it(): os.kill(os.getpid(), 9)")
    assert ran.returncode == 1
    assert "lanes that broke down: exit codes [-9]" in ran.stdout
