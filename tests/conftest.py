"""What every test may ask for: the pieces of the machine it needs, and that it leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

NEEDS = {
    "root": (lambda: os.geteuid() == 0, "needs to be root"),
    "torch": (lambda: importlib.util.find_spec("torch") is not None, "needs torch: pip install torch==2.13.0"),
    "etcd": (lambda: shutil.which("etcd") is not None, "needs etcd: apt-get install etcd-server"),
    "chromium": (lambda: shutil.which("chromium") is not None, "needs Chromium: apt-get install chromium"),
}


def pytest_runtest_setup(item):
    """A test that lacks a piece of the machine is skipped with the reason; where CI is set it fails."""
    for name, (is_there, reason) in NEEDS.items():
        if item.get_closest_marker(name) and not is_there():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
