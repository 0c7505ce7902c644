"""Process attributes, as the kernel acts on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from liveness import wait_for_end

from holdfast.processes import prctl

ADOPTS = """
import os
from holdfast.processes.prctl import adopt_orphans
assert adopt_orphans() is True
told, tell = os.pipe()
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            os.sched_yield()
        os.write(tell, b"%d" % os.getppid())
    os._exit(0)
os.wait()
adopter = int(os.read(told, 100))
assert adopter == os.getpid(), adopter
os.wait()
"""

DIES = """
import os, signal, sys
from holdfast.processes.prctl import die_with_parent
told, tell = os.pipe()
child = os.fork()
if child == 0:
    die_with_parent(signal.SIGKILL)
    os.write(tell, b"ready")
    signal.pause()
os.read(told, 100)
print(child, flush=True)
sys.stdin.read()
"""


def test_orphans_come_to_the_process_that_adopts_them():
    subprocess.run([sys.executable, "-c", ADOPTS], check=True, timeout=60)


def test_a_process_gets_the_signal_when_its_parent_dies():
    with subprocess.Popen([sys.executable, "-c", DIES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    left = wait_for_end([child])
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_what_the_kernel_refuses_is_an_error_that_names_it():
    with pytest.raises(OSError, match=r"prctl\(1, 4096\): Invalid argument"):
        prctl.die_with_parent(4096)


def test_elsewhere_than_on_linux_nothing_is_done(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert prctl.adopt_orphans() is False
    assert prctl.die_with_parent(4096) is False, "the kernel was not asked"
