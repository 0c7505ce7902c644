"""What every test may ask for: the pieces of the machine it needs, and that it leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
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

_PLACE = pytest.StashKey()


def pytest_configure(config):
    """What jobs of tests leave goes with us, and they are not listed among those of the person who tests."""
    # pytest and the tests themselves have asked for the directory by now, and keep it: paths of sockets are short.
    place = tempfile.TemporaryDirectory(prefix="holdfast-", dir=tempfile.gettempdir(), ignore_cleanup_errors=True)
    environment = {"TMPDIR": place.name, "XDG_STATE_HOME": os.path.join(place.name, "state")}
    config.stash[_PLACE] = (place, {name: os.environ.get(name) for name in environment})
    os.environ.update(environment)


def pytest_unconfigure(config):
    place, before = config.stash[_PLACE]
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    place.cleanup()


def _imports_torch(item):
    return getattr(item.module, "IMPORTS_TORCH", False)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """A file whose tests import torch into this process says so, and comes last: torch starts threads, and a process
    with threads starts its keeper in another way.
    """
    items.sort(key=_imports_torch)


def pytest_runtest_teardown(item):
    assert _imports_torch(item) or "torch" not in sys.modules, "a file that imports torch here sets IMPORTS_TORCH"


def pytest_runtest_setup(item):
    """A test that lacks a piece of the machine is skipped with the reason; where CI is set it fails."""
    for name, (is_there, reason) in NEEDS.items():
        if item.get_closest_marker(name) and not is_there():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
