"""What /proc says about real processes: this one, its threads and its children."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from holdfast import procfs
from holdfast.procfs import SELF, Stat, Status

LINE = b"7 (%s) S 3 7 7 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 4242 " + b"0 " * 25 + b"1000 1016 0 0 0 0"


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def zombie():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    os.waitpid(pid, 0)


@pytest.fixture
def nobody():
    """The number of a process that has ended and was waited for."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("name", [b"python", b"a b", b") S 1 2", b"(((", b"new\nline"])
def test_fields_are_found_whatever_the_program_is_called(name):
    stat = Stat(LINE % name)
    ticks_a_second = os.sysconf("SC_CLK_TCK")
    assert (stat.state, stat.parent, stat.flags) == ("S", 3, 4194560)
    assert stat.cpu_s == (100 + 20 + 3 + 4) / ticks_a_second
    assert stat.began_s == 4242 / ticks_a_second
    assert stat.arguments == range(1000, 1016)


def test_this_process_is_described_as_it_is():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    stat = procfs.stat(SELF)
    assert stat.state == "R"
    assert stat.parent == os.getppid()
    assert 0 < stat.cpu_s <= sum(os.times()[:4]) + 1
    assert 0 < stat.began_s <= before
    command = ctypes.string_at(stat.arguments.start, len(stat.arguments))
    with open("/proc/self/cmdline", "rb") as file:
        assert command == file.read()


def test_a_child_is_a_child_of_the_thread_that_started_it(child):
    assert procfs.stat(child).parent == os.getpid()
    assert child in procfs.children(SELF, os.getpid())
    assert child in procfs.processes()
    assert procfs.owner(child) == os.geteuid()


def test_an_ended_process_has_a_state_until_it_is_waited_for(zombie, nobody):
    assert procfs.state(zombie) in procfs.ENDED
    assert procfs.status(zombie).state in procfs.ENDED
    assert procfs.state(nobody) == procfs.status(nobody).state == procfs.kernel_function(nobody) == ""
    for ask in (procfs.stat, procfs.threads, procfs.open_descriptors, procfs.written_bytes, procfs.owner):
        with pytest.raises(OSError, match="No such"):
            ask(nobody)


def test_a_process_that_ends_during_a_read_is_no_process(child):
    """The kernel says so when an open file of it is read."""
    with open(f"/proc/{child}/stat", "rb") as file:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with pytest.raises(ProcessLookupError):
            os.read(file.fileno(), 1)


def test_a_thread_has_a_line_of_its_own():
    begun, done = threading.Event(), threading.Event()

    def wait():
        begun.set()
        done.wait()

    before = len(procfs.threads(SELF))
    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    try:
        assert procfs.has_threads()
        assert len(procfs.threads(SELF)) == before + 1
        assert procfs.thread_stat(SELF, thread.native_id).parent == os.getppid()
        assert procfs.thread_status(SELF, thread.native_id).value("Pid") == str(thread.native_id)
    finally:
        done.set()
        thread.join()


def test_values_are_found_by_their_names():
    status = Status(b"Name:\tState:\\nSigCgt:\nState:\tS (sleeping)\nSigCgt:\t0000000180004002\nCapEff:\t\n")
    assert status.state == "S"
    assert status.bits("SigCgt") == 0x180004002
    assert status.bits("CapEff") == status.bits("SigBlk") == 0
    assert status.value("Name") == ""  # the first line; no one asks for it
    assert Status(b"").state == ""


def test_caught_signals_are_those_with_a_handler():
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert procfs.status(SELF).bits("SigCgt") >> (signal.SIGUSR2 - 1) & 1
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        assert not procfs.status(SELF).bits("SigCgt") >> (signal.SIGUSR2 - 1) & 1
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_what_is_written_is_counted():
    before = procfs.written_bytes(SELF)
    with open(os.devnull, "wb", buffering=0) as file:
        file.write(b"x" * 1000)
    assert procfs.written_bytes(SELF) >= before + 1000


def test_descriptors_are_listed_and_lead_to_their_files(tmp_path):
    path = tmp_path / "file"
    with open(path, "w") as file:
        assert file.fileno() in procfs.open_descriptors(SELF)
        assert os.readlink(procfs.descriptor(SELF, file.fileno())) == str(path)


CLOSE_ALL = """
import os
from holdfast import procfs
one, two = os.pipe()
procfs.close_descriptors({two})
print([fd for fd in (0, 1, 2, one, two) if os.path.exists(procfs.descriptor("self", fd))] == [0, 1, 2, two])
procfs.rename("a name of sixteen characters")
print(procfs.name())
"""


def test_a_process_closes_all_but_a_few_descriptors_and_has_a_name():
    ran = subprocess.run([sys.executable, "-c", CLOSE_ALL], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines() == ["True", "a name of sixte"]
