"""Sets of signals, and the signals of a process that was forked."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from holdfast.signals import FAULTS, UNCATCHABLE, leave_to_main_thread, name_of


@pytest.mark.parametrize(
    ("signum", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (signal.SIGRTMIN + 3, f"signal {signal.SIGRTMIN + 3}")]
)
def test_a_signal_has_a_name_or_a_number(signum, name):
    assert name_of(signum) == name


def test_a_thread_leaves_signals_to_the_main_thread_but_not_its_own_faults():
    masks = []

    def run():
        masks.append(leave_to_main_thread())
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    before, after = masks
    assert before == signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD} <= after
    assert not after & (FAULTS | UNCATCHABLE)


AS_INTERPRETER = """
import signal
from holdfast.signals import set_as_interpreter
before = {s: signal.getsignal(s) for s in signal.valid_signals()}
for signum in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
    signal.signal(signum, signal.SIG_DFL)
set_as_interpreter()
assert before == {s: signal.getsignal(s) for s in signal.valid_signals()}
signal.signal(signal.SIGINT, signal.SIG_IGN)
set_as_interpreter()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def test_a_forked_process_gets_the_signals_of_a_new_interpreter_and_ignored_interrupts_stay_ignored():
    subprocess.run([sys.executable, "-c", AS_INTERPRETER], check=True, timeout=60)
