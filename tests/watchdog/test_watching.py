from __future__ import annotations

import math
import os
import queue
import signal
import threading

import pytest

from holdfast.watchdog import watching
from holdfast.watchdog.watching import WatchThread

DEADLINE_S = 60


@pytest.fixture
def ends():
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


@pytest.fixture
def watch(ends):
    """Starts threads that wait for the pipe, and stops them."""
    threads = []

    def start(step, fd=ends[0]):
        threads.append(WatchThread("a watch", step, fd, daemon=True))
        return threads[-1]

    yield start
    for thread in threads:
        thread.stop()


def test_a_step_is_made_at_once_and_when_the_descriptor_is_readable(watch, ends):
    steps = queue.Queue()
    read_end, write_end = ends

    def step():
        steps.put(os.read(read_end, 1) if told.is_set() else b"start")
        return math.inf

    told = threading.Event()
    watch(step)
    assert steps.get(timeout=DEADLINE_S) == b"start"
    told.set()
    os.write(write_end, b"x")
    assert steps.get(timeout=DEADLINE_S) == b"x"


def test_a_step_is_made_when_its_time_has_come(watch):
    waits = iter([0.01, -5.0, 0.0])
    done = threading.Event()

    def step():
        wait_s = next(waits, math.inf)
        if wait_s == math.inf:
            done.set()
        return wait_s

    watch(step)
    assert done.wait(DEADLINE_S)


def test_a_step_is_made_when_somebody_asks_for_it(watch):
    steps = queue.Queue()
    watched = watch(lambda: steps.put(None) or math.inf)
    for _ in range(3):
        steps.get(timeout=DEADLINE_S)
        watched.wake()
    steps.get(timeout=DEADLINE_S)


def test_a_step_that_asks_for_one_gets_none(watch):
    """Or a step that sets timers would be made again and again."""
    steps = queue.Queue()
    ready = threading.Event()

    def step():
        ready.wait(DEADLINE_S)
        watched.wake()
        steps.put(None)
        return math.inf

    watched = watch(step)
    ready.set()
    steps.get(timeout=DEADLINE_S)
    with pytest.raises(queue.Empty):
        steps.get(timeout=0.2)


def test_none_is_the_end(watch):
    watched = watch(lambda: None)
    watched._thread.join(DEADLINE_S)
    assert not watched._thread.is_alive()
    watched.wake()


def test_a_step_that_fails_is_made_again(watch, ends, monkeypatch, capfd):
    monkeypatch.setattr(watching, "RETRY_S", 0.01)
    os.write(ends[1], b"never read")
    steps = queue.Queue()

    def step():
        steps.put(None)
        raise KeyError("broken")

    watch(step)
    for _ in range(3):
        steps.get(timeout=DEADLINE_S)
    assert "holdfast: a watch: KeyError('broken'); trying again in 0.01 s" in capfd.readouterr().err


def test_a_step_that_always_fails_does_not_spin(watch, ends):
    os.write(ends[1], b"never read")
    steps = []

    def step():
        steps.append(None)
        if len(steps) == 1:
            first.set()
        raise KeyError("broken")

    first = threading.Event()
    watched = watch(step)
    assert first.wait(DEADLINE_S)
    watched.stop()
    watched.stop = lambda: None
    assert len(steps) <= 2


@pytest.mark.usefixtures("nothing_left")
def test_stopped_it_ends_at_once_and_leaves_nothing():
    WatchThread("a watch", lambda: math.inf, None, daemon=False).stop()


def test_signals_are_for_the_main_thread(watch):
    masks = queue.Queue()
    watch(lambda: masks.put(signal.pthread_sigmask(signal.SIG_BLOCK, [])) or math.inf)
    mask = masks.get(timeout=DEADLINE_S)
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD} <= mask
    assert signal.SIGSEGV not in mask
