"""What the keeper and its workers inherit."""

from __future__ import annotations

import marshal
import subprocess
import sys

import pytest

from holdfast.processes.signal_setup import SignalSetup

BEGIN = """
import os, resource, signal, sys
from holdfast import descriptors
from holdfast.processes.signal_setup import SignalSetup, ignore_signals
from holdfast.signals import FAULTS, IGNORED_BY_PYTHON, UNCATCHABLE
"""


def run(program):
    """Run a program in a process of its own, since signals belong to a process."""
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_plain_form_survives_the_way_to_another_interpreter():
    setup = SignalSetup({10, 12}, [1], 1024)
    copy = SignalSetup(*marshal.loads(marshal.dumps(setup.plain())))
    assert (set(copy.blocked), copy.ignored, copy.files_max) == ({10, 12}, (1,), 1024)


def test_all_signals_are_blocked_and_unblock_restores_the_mask():
    run("""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
setup = SignalSetup.block_all()
mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert mask >= signal.valid_signals() - UNCATCHABLE, mask
assert setup.blocked == (signal.SIGUSR1,), setup.blocked
setup.unblock()
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1}
""")


def test_ignored_signals_are_known_but_for_those_that_python_ignores():
    run("""
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda *_: None)
assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
setup = SignalSetup.block_all()
assert setup.ignored == (signal.SIGHUP,), setup.ignored
""")


def test_a_worker_has_the_dispositions_of_the_agent_and_no_handlers():
    run("""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
setup = SignalSetup.block_all()
ignore_signals()
setup.restore()
ignored = {s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN}
assert ignored == {signal.SIGHUP}, ignored
default = {s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_DFL}
assert default == signal.valid_signals() - {signal.SIGHUP}, signal.valid_signals() - default
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1}
""")


@pytest.mark.parametrize("raises", [True, False])
def test_a_worker_has_the_limit_of_open_files_that_the_agent_began_with(raises):
    run(f"""
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
if {raises}:
    descriptors.allow(120)
setup = SignalSetup.block_all()
assert setup.files_max == (100 if {raises} else None), setup.files_max
setup.restore()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100, hard)
""")


def test_the_keeper_ignores_all_but_faults_and_the_ends_of_children():
    run("""
ignore_signals()
left = {s for s in signal.valid_signals() - UNCATCHABLE if signal.getsignal(s) is not signal.SIG_IGN}
assert left == FAULTS | {signal.SIGCHLD}, left
awake, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
os.kill(os.getpid(), signal.SIGCHLD)
assert os.read(awake, 10) == bytes([signal.SIGCHLD])
""")
