"""One wait for descriptors, deadlines and signals."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from holdfast.agent.wait import Wait, pause_until
from holdfast.processes import SignalException
from holdfast.processes.interruption import Uninterrupted, handlers


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def handled():
    handlers.install()
    yield
    handlers.uninstall()


def test_news_end_a_wait_without_a_deadline(pipe):
    reader, writer = pipe
    wait = Wait()
    wait.add(reader)
    wait.add(None)
    wait.at_most(None)
    wait.until(None)
    assert wait.wait_s is None
    os.write(writer, b"x")
    wait.run()


def test_the_nearest_deadline_ends_a_wait_without_news(pipe):
    wait = Wait()
    wait.add(pipe[0])
    for wait_s in (600.0, 0.001, None, 500.0):
        wait.at_most(wait_s)
    assert wait.wait_s == 0.001
    wait.run()


def test_a_time_that_has_passed_is_a_deadline_now():
    wait = Wait()
    wait.until(time.monotonic() - 5)
    assert wait.wait_s == 0.0
    wait.run()


def test_a_signal_ends_a_wait_without_a_deadline(handled):
    main = threading.get_ident()
    sender = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGTERM))
    sender.start()
    with pytest.raises(SignalException):
        Wait().run()
    sender.join()


def test_a_signal_that_came_just_before_is_not_slept_through(handled, monkeypatch):
    enter = Uninterrupted.__enter__

    def enter_and_be_signalled(section):
        enter(section)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Uninterrupted, "__enter__", enter_and_be_signalled)
    with pytest.raises(SignalException):
        Wait().run()


def test_a_pause_lasts_until_its_time_whatever_wakes_it_up(handled):
    """A handler of the program's own is no reason to end it."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    main, at = threading.get_ident(), time.monotonic() + 0.2
    sender = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
    sender.start()
    try:
        pause_until(at)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert heard == [1]
    assert time.monotonic() >= at
