"""What every test may ask for: the pieces of the machine it needs, and that it leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

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

# How fast a machine is today proves nothing. An example that fails can be given to `reproduce_failure`.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("here")


def pytest_configure(config):
    """What jobs of tests leave goes with us, and they are not listed among those of the person who tests."""
    # pytest and the tests themselves have asked for the directory by now, and keep it: paths of sockets are short.
    place = tempfile.TemporaryDirectory(prefix="holdfast-", dir=tempfile.gettempdir(), ignore_cleanup_errors=True)
    environment = {"TMPDIR": place.name, "XDG_STATE_HOME": os.path.join(place.name, "state")}
    config.stash[_PLACE] = (place, {name: os.environ.get(name) for name in environment})
    os.environ.update(environment)
    _treat_signals_as_a_terminal_does()


def _treat_signals_as_a_terminal_does():
    """A job in the background of a script, or under nohup, inherits ignored signals. The programs that tests start
    must not: many tests send these signals. Tests about ignored signals ignore them themselves.
    """
    for signum in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


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
