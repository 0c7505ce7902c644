from __future__ import annotations

import os
import signal

import pytest

from holdfast.watchdog import FileTimerRequest, deadlines
from holdfast.watchdog.deadlines import Deadlines, Expiry


@pytest.fixture
def watched():
    watched = Deadlines()
    yield watched
    watched.close()


def pidfds():
    return [fd for fd in os.listdir("/proc/self/fd") if _link(fd).startswith("anon_inode:[pidfd]")]


def _link(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""


def test_an_overdue_process_gets_its_signal_and_others_none(watched, sleeper):
    overdue, other = sleeper(), sleeper()
    timer = FileTimerRequest(overdue.pid, "a", 10.0, signal.SIGTERM)
    assert watched.register(timer) is None
    assert watched.register(FileTimerRequest(other.pid, "a", 20.0, signal.SIGTERM)) is None
    assert watched.expire(9.0) == []
    assert watched.expire(10.0) == [Expiry(overdue.pid, [timer], timer, None)]
    assert overdue.wait() == -signal.SIGTERM
    assert other.poll() is None
    assert watched.expire(10.0) == []


def test_the_first_timer_with_a_signal_decides(watched, sleeper):
    process = sleeper()
    for scope, time, signum in [("third", 3.0, signal.SIGKILL), ("second", 2.0, signal.SIGTERM), ("first", 1.0, 0)]:
        watched.register(FileTimerRequest(process.pid, scope, time, signum))
    (expiry,) = watched.expire(5.0)
    assert [timer.scope_id for timer in expiry.timers] == ["first", "second", "third"]
    assert expiry.deciding.scope_id == "second"
    assert expiry.signal == signal.SIGTERM
    assert process.wait() == -signal.SIGTERM


@pytest.mark.parametrize("signum", [0, -1])
def test_without_a_signal_the_process_goes_on(watched, sleeper, signum):
    process = sleeper()
    watched.register(FileTimerRequest(process.pid, "a", 1.0, signum))
    watched.register(FileTimerRequest(process.pid, "later", 9.0, signal.SIGKILL))
    (expiry,) = watched.expire(2.0)
    assert expiry.signal == 0
    assert "goes on" in str(expiry)
    assert process.poll() is None
    assert (process.pid, "a") not in watched.timers
    assert (process.pid, "later") in watched.timers


def test_who_survives_the_first_signal_meets_the_next(watched, start_python, post):
    code = """
        import signal, sys
        from signpost import tell
        signal.signal(signal.SIGTERM, lambda *_: tell(sys.argv[1], "asked to end"))
        tell(sys.argv[1], "ready")
        while True:
            signal.pause()
    """
    process = start_python(code, post.path)
    assert post.line() == "ready"
    watched.register(FileTimerRequest(process.pid, "soft", 1.0, signal.SIGTERM))
    watched.register(FileTimerRequest(process.pid, "hard", 2.0, signal.SIGKILL))
    watched.expire(1.0)
    assert post.line() == "asked to end"
    watched.expire(2.0)
    assert process.wait() == -signal.SIGKILL


def test_who_was_killed_has_no_timers(watched, sleeper):
    process = sleeper()
    watched.register(FileTimerRequest(process.pid, "a", 1.0, signal.SIGKILL))
    watched.register(FileTimerRequest(process.pid, "later", 9.0, signal.SIGKILL))
    watched.expire(1.0)
    assert len(watched.timers) == 0


def test_timers_of_the_dead_are_cleared_and_nothing_is_done(watched, sleeper):
    ended, other = sleeper(), sleeper()
    watched.register(FileTimerRequest(ended.pid, "a", 1.0, signal.SIGKILL))
    watched.register(FileTimerRequest(ended.pid, "later", 9.0, signal.SIGKILL))
    watched.register(FileTimerRequest(other.pid, "a", 9.0, signal.SIGKILL))
    ended.kill()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert watched.expire(1.0) == []
    assert watched.timers.pids() == {other.pid}


def test_a_new_process_with_the_number_of_an_ended_one_starts_afresh(watched, sleeper):
    """The table believes that the second process is the first, as after the reuse of a number."""
    first, second = sleeper(), sleeper()
    watched.register(FileTimerRequest(first.pid, "old", 5.0, signal.SIGKILL))
    first.kill()
    first.wait()
    watched._targets[second.pid] = watched._targets.pop(first.pid)
    watched.timers.clear([first.pid])
    watched.timers.register(FileTimerRequest(second.pid, "old", 5.0, signal.SIGKILL))

    watched.register(FileTimerRequest(second.pid, "new", 9.0, signal.SIGTERM))
    assert (second.pid, "old") not in watched.timers
    watched.expire(9.0)
    assert second.wait() == -signal.SIGTERM


@pytest.mark.parametrize("pid", [1, os.getpid()])
def test_init_and_the_watching_process_are_never_signalled(watched, pid):
    assert "more than a worker" in watched.register(FileTimerRequest(pid, "a", 1.0, signal.SIGKILL))
    assert watched.expire(2.0) == []


@pytest.mark.parametrize("pid", [0, -1, -os.getpgid(0)])
def test_groups_are_never_signalled(watched, pid):
    """They cannot come through the pipe, but by register_timers."""
    assert watched.register(FileTimerRequest(pid, "a", 1.0, signal.SIGKILL)) is not None
    assert watched.expire(2.0) == []


def test_only_those_that_are_accepted_have_timers(sleeper):
    worker, stranger = sleeper(), sleeper()
    watched = Deadlines(lambda pid: pid == worker.pid)
    assert watched.register(FileTimerRequest(worker.pid, "a", 1.0, 9)) is None
    assert "not one of the workers" in watched.register(FileTimerRequest(stranger.pid, "a", 1.0, 9))
    assert [expiry.pid for expiry in watched.expire(1.0)] == [worker.pid]
    assert stranger.poll() is None
    watched.close()


def test_a_process_that_is_gone_gets_no_timer_and_no_complaint(watched, sleeper):
    gone, zombie = sleeper(), sleeper()
    for process in (gone, zombie):
        process.kill()
    gone.wait()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    for process in (gone, zombie):
        assert watched.register(FileTimerRequest(process.pid, "a", 1.0, 9)) is None
    assert len(watched.timers) == 0
    assert pidfds() == []


def test_a_process_is_held_only_while_it_has_timers(watched, sleeper):
    process = sleeper()
    watched.register(FileTimerRequest(process.pid, "a", 1.0))
    watched.register(FileTimerRequest(process.pid, "b", 1.0))
    assert len(pidfds()) == 1
    watched.register(FileTimerRequest(process.pid, "a", -1))
    assert len(pidfds()) == 1
    watched.register(FileTimerRequest(process.pid, "b", -1))
    assert pidfds() == []


def test_timers_are_limited_and_releases_are_not(watched, sleeper, monkeypatch):
    monkeypatch.setattr(deadlines, "TIMERS_MAX", 2)
    process = sleeper()
    for scope in "ab":
        assert watched.register(FileTimerRequest(process.pid, scope, 1.0, 9)) is None
    assert "at most 2 on" in watched.register(FileTimerRequest(process.pid, "c", 1.0, 9))
    assert watched.register(FileTimerRequest(process.pid, "b", 7.0, 9)) is None  # not one more
    assert watched.timers.expired(1.0).keys() == {process.pid}
    assert watched.register(FileTimerRequest(process.pid, "a", -1)) is None
    assert watched.timers.next_expiry() == 7.0
    assert watched.register(FileTimerRequest(process.pid, "c", 1.0, 9)) is None


def test_processes_are_limited_and_the_dead_make_room(watched, sleeper, monkeypatch):
    monkeypatch.setattr(deadlines, "PROCESSES_MAX", 1)
    first, second = sleeper(), sleeper()
    assert watched.register(FileTimerRequest(first.pid, "a", 1.0, 9)) is None
    assert watched.register(FileTimerRequest(second.pid, "a", 1.0, 9)) is not None
    first.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    assert watched.register(FileTimerRequest(second.pid, "a", 1.0, 9)) is None


def test_a_signal_that_may_not_be_sent_is_told_and_not_tried_again(watched, sleeper, monkeypatch):
    def forbidden(*_):
        raise PermissionError(1, "Operation not permitted")

    process = sleeper()
    watched.register(FileTimerRequest(process.pid, "a", 1.0, signal.SIGTERM))
    monkeypatch.setattr(signal, "pidfd_send_signal", forbidden)
    (expiry,) = watched.expire(1.0)
    assert expiry.signal == 0
    assert "SIGTERM could not be sent: [Errno 1]" in str(expiry)
    assert watched.expire(1.0) == []


def test_an_expiry_reads_well():
    timers = [FileTimerRequest(12, "train.py#3", 1.0, 15), FileTimerRequest(12, "a\x1b[2Jb" + "c" * 999, 2.0, 9)]
    text = str(Expiry(12, timers, timers[0], None))
    assert text.startswith("the time of process 12 for train.py#3, a\\x1b[2Jbccc")
    assert text.endswith("c... has run out; SIGTERM was sent")
    assert len(text) < 300
    many = [FileTimerRequest(12, f"s{number}", 1.0, 15) for number in range(9)]
    assert "for s0, s1, s2, s3, s4 and 4 more has run out" in str(Expiry(12, many, many[0], None))
    unnamed = FileTimerRequest(12, "s", 1.0, 40)
    assert str(Expiry(12, [unnamed], unnamed, None)).endswith("; signal 40 was sent")
