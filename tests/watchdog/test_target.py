from __future__ import annotations

import os
import signal

import pytest

from holdfast.watchdog.target import Target, is_running


@pytest.fixture(params=["pidfd", "number"])
def kernel(request, monkeypatch):
    """With pidfds, and without."""
    if request.param == "number":
        monkeypatch.delattr(os, "pidfd_open")
    return request.param


@pytest.mark.usefixtures("kernel", "nothing_left")
def test_a_process_is_signalled(sleeper):
    process = sleeper()
    target = Target(process.pid)
    assert target.is_alive()
    target.send(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    assert not target.is_alive()
    with pytest.raises(ProcessLookupError):
        target.send(signal.SIGTERM)
    target.close()
    target.close()


@pytest.mark.usefixtures("kernel")
def test_a_process_that_is_not_there_is_no_target(sleeper):
    process = sleeper()
    process.kill()
    process.wait()
    with pytest.raises(ProcessLookupError):
        Target(process.pid)
    assert not is_running(process.pid)


def test_a_zombie_has_ended(sleeper):
    process = sleeper()
    target = Target(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not target.is_alive()
    assert not is_running(process.pid)
    target.close()


def test_a_number_that_is_used_again_is_not_hit(sleeper, monkeypatch):
    """What a number means later must not matter: here, it means another process."""
    first, second = sleeper(), sleeper()
    target = Target(first.pid)
    first.kill()
    first.wait()
    target.pid = second.pid
    with pytest.raises(ProcessLookupError):
        target.send(signal.SIGKILL)
    assert is_running(second.pid)
    target.close()


@pytest.mark.usefixtures("nothing_left")
def test_too_many_descriptors_are_no_reason_to_fail(sleeper, monkeypatch):
    def none_left(_pid):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    process = sleeper()
    Target(process.pid).send(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


def test_who_runs():
    assert is_running(os.getpid())
    assert is_running(1)
    assert not is_running(0)
    assert not is_running(-1)
