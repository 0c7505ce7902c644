"""A process that has begun to end is told from one that we ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from signpost import tell

from holdfast.processes.exiting import is_ending

SUPPORT = f"import sys; sys.path.insert(0, {os.path.dirname(sys.modules['signpost'].__file__)!r})\n"

LOST_PEER = """
open({gate!r}).read()
raise ConnectionResetError("a peer is gone")
"""

HELD = """
import ctypes, os, signal
from signpost import tell
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PR_SET_PTRACER, ANY = 0x4206, 0x59616D61, ctypes.c_ulong(-1)
worker = os.getpid()
libc.prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
ready, is_ready = os.pipe()
if os.fork() == 0:
    # Whoever traces a process has its exit first, and keeps it until it ends itself.
    if libc.ptrace(PTRACE_SEIZE, worker, None, None):
        tell({post!r}, "errno " + str(ctypes.get_errno()))
        os._exit(1)
    os.write(is_ready, b"x")
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    tell({post!r}, "held")
    while True:
        signal.pause()
os.close(is_ready)
os.read(ready, 1)
{end}
"""


@pytest.mark.parametrize(
    ("end", "code"), [("os.kill(worker, signal.SIGKILL)", -signal.SIGKILL), ("os._exit(3)", 3), ("os._exit(0)", 0)]
)
def test_a_worker_whose_end_takes_longer_than_that_of_its_victims_has_not_been_stopped(
    run_python, post, tmp_path, end, code
):
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    context = run_python([SUPPORT + HELD.format(post=post.path, end=end), LOST_PEER.format(gate=gate)])
    held = post.line()
    if held != "held":
        pytest.skip(f"no process may trace another here: {held}")
    tell(gate, "")
    result = context.wait()
    assert result.terminated == {}
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == ({0: code} if code else {}) | {1: 1}


def test_who_is_ending():
    assert not is_ending(os.getpid())
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_ending(process.pid)
    process.wait()
    assert not is_ending(process.pid)


def test_a_process_that_lost_its_first_thread_only_goes_on(post):
    leaves = """
import ctypes, threading
from signpost import tell
def go_on():
    # The first thread is still there for a moment after it has ended as Python sees it.
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    tell(POST, "alone")
    threading.Event().wait()
import os
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the number of a system call is another one here")
    process = subprocess.Popen([sys.executable, "-c", SUPPORT + leaves.replace("POST", repr(post.path))])
    try:
        assert post.line() == "alone"
        assert not is_ending(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
