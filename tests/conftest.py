"""What every test may ask for: the pieces of the machine it needs, and that it leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile

import pytest

NEEDS = {
    "root": (lambda: os.geteuid() == 0, "needs to be root"),
    "torch": (lambda: importlib.util.find_spec("torch") is not None, "needs torch: pip install torch==2.13.0"),
    "etcd": (lambda: shutil.which("etcd") is not None, "needs etcd: apt-get install etcd-server"),
    "slurm": (
        lambda: all(map(shutil.which, ("munged", "slurmctld", "slurmd", "sbatch"))),
        "needs Slurm: apt-get install munge slurmctld slurmd slurm-client",
    ),
    "chromium": (lambda: shutil.which("chromium") is not None, "needs Chromium: apt-get install chromium"),
}

_STATE_HOME = pytest.StashKey()


def pytest_configure(config):
    """The runs of tests are not listed among those of the person who tests."""
    state_home = tempfile.TemporaryDirectory(prefix="holdfast-state-", ignore_cleanup_errors=True)
    config.stash[_STATE_HOME] = (state_home, os.environ.get("XDG_STATE_HOME"))
    os.environ["XDG_STATE_HOME"] = state_home.name


def pytest_unconfigure(config):
    state_home, before = config.stash[_STATE_HOME]
    state_home.cleanup()
    if before is None:
        os.environ.pop("XDG_STATE_HOME", None)
    else:
        os.environ["XDG_STATE_HOME"] = before


def pytest_runtest_setup(item):
    """A test that lacks a piece of the machine is skipped with the reason; where CI is set it fails."""
    for name, (is_there, reason) in NEEDS.items():
        if item.get_closest_marker(name) and not is_there():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
