from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time

import pytest
import timer_workers
from liveness import status

from holdfast.watchdog import LocalTimerClient, LocalTimerServer, MultiprocessingRequestQueue, TimerRequest

DEADLINE_S = 60
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def mp_queue():
    mp_queue = SPAWN.Queue()
    yield mp_queue
    mp_queue.close()
    mp_queue.join_thread()


@pytest.fixture
def server(mp_queue):
    server = LocalTimerServer(mp_queue)
    yield server
    server.stop()


@pytest.fixture
def start_worker():
    """Starts functions of timer_workers in processes that end with the test."""
    started = []

    def start(function, *args):
        process = SPAWN.Process(target=function, args=args)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()
        process.close()


def test_a_worker_that_is_late_is_killed(server, mp_queue, start_worker, capfd):
    server.start()
    worker = start_worker(timer_workers.miss, mp_queue, 0.1)
    worker.join(DEADLINE_S)
    assert worker.exitcode == -signal.SIGKILL
    server.stop()
    assert f"the time of process {worker.pid} for missed has run out; SIGKILL was sent" in capfd.readouterr().err


def test_one_that_comes_late_to_the_server_too(server, mp_queue, start_worker):
    server.start()
    worker = start_worker(timer_workers.late, mp_queue)
    worker.join(DEADLINE_S)
    assert worker.exitcode == -signal.SIGKILL


def test_a_worker_that_is_in_time_goes_on(server, mp_queue, start_worker, post):
    """The server starts when everything is in the queue: a release counts before anybody is ended."""
    worker = start_worker(timer_workers.keep, mp_queue, post.path)
    assert post.line() == "kept"
    server.start()
    other = start_worker(timer_workers.late, mp_queue)  # when this one is ended, the server has seen all
    other.join(DEADLINE_S)
    assert other.exitcode == -signal.SIGKILL
    assert worker.is_alive()


def test_timers_can_be_set_cleared_and_looked_at_directly(server, sleeper):
    first, second = sleeper(), sleeper()
    timers = [TimerRequest(first.pid, "late", 20.0), TimerRequest(first.pid, "early", 10.0)]
    other = TimerRequest(second.pid, "other", 15.0)
    server.register_timers([*timers, other, TimerRequest(second.pid, "released", 1.0)])
    server.register_timers([TimerRequest(second.pid, "released", -1)])
    assert server.get_expired_timers(15.0) == {first.pid: [timers[1]], second.pid: [other]}
    assert server.get_expired_timers(20.0)[first.pid] == [timers[1], timers[0]]
    server.clear_timers({first.pid})
    assert server.get_expired_timers(100.0) == {second.pid: [other]}


def test_a_timer_that_is_set_directly_wakes_the_thread(server, sleeper):
    process = sleeper()
    server.start()
    server.register_timers([TimerRequest(process.pid, "a", time.time() + 0.1)])
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_the_dead_are_not_killed_again(server, sleeper, capfd):
    dead, late = sleeper(), sleeper()
    server.register_timers([TimerRequest(dead.pid, "a", 1.0)])
    dead.kill()
    dead.wait()
    server.register_timers([TimerRequest(late.pid, "a", 1.0)])
    server.start()
    assert late.wait(DEADLINE_S) == -signal.SIGKILL
    server.stop()
    assert f"process {dead.pid} " not in capfd.readouterr().err


@pytest.mark.parametrize(
    "nonsense",
    ["text", None, TimerRequest("x", "a", 1.0), TimerRequest(2**40, "a", 1.0), TimerRequest(12, "a", math.nan)],
)
def test_nonsense_is_ignored_and_what_follows_counts(server, mp_queue, start_worker, nonsense, capfd):
    mp_queue.put(nonsense)
    server.start()
    worker = start_worker(timer_workers.late, mp_queue)
    worker.join(DEADLINE_S)
    assert worker.exitcode == -signal.SIGKILL
    assert "holdfast: watchdog: a request in the queue is ignored: " in capfd.readouterr().err


@pytest.mark.parametrize("pid", [os.getpid(), 1, 0, -1])
def test_only_single_other_processes_can_have_timers(server, pid, capfd):
    server.register_timers([TimerRequest(pid, "a", 1.0)])
    assert server.get_expired_timers(2.0) == {}
    assert "more than a worker" in capfd.readouterr().err


@pytest.mark.usefixtures("nothing_left")
def test_stopped_it_ends_at_once_and_leaves_nothing():
    mp_queue = SPAWN.Queue()
    server = LocalTimerServer(mp_queue, max_interval=3600)
    server.start()
    server.stop()
    server.stop()
    mp_queue.close()
    mp_queue._writer.close()


def test_the_thread_sleeps_until_something_happens(mp_queue, sleeper):
    """As the kernel counts: the thread gave up the processor once, to wait, and not again."""
    server = LocalTimerServer(mp_queue, max_interval=0.001)
    server.register_timers([TimerRequest(sleeper().pid, "a", time.time() + 3600)])
    server.start()
    thread = next(thread for thread in threading.enumerate() if thread.name == "watchdog")
    task = f"{os.getpid()}/task/{thread.native_id}"
    while status(task, "State")[0] != "S":
        time.sleep(0.01)
    time.sleep(0.1)
    before = int(status(task, "voluntary_ctxt_switches"))
    time.sleep(1)
    assert int(status(task, "voluntary_ctxt_switches")) - before <= 1
    server.stop()


def test_a_queue_that_is_closed_ends_the_watch(capfd):
    mp_queue = SPAWN.Queue()
    server = LocalTimerServer(mp_queue)
    server.start()
    thread = next(thread for thread in threading.enumerate() if thread.name == "watchdog")
    LocalTimerClient(mp_queue).acquire("a", -1)
    mp_queue.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    server.stop()
    assert "the queue of requests is closed" in capfd.readouterr().err


def test_a_managers_queue_has_no_descriptor_and_does(sleeper):
    process = sleeper()
    with SPAWN.Manager() as manager:
        mp_queue = manager.Queue()
        assert MultiprocessingRequestQueue(mp_queue).fileno() is None
        server = LocalTimerServer(mp_queue, max_interval=0.01)
        server.start()
        mp_queue.put(TimerRequest(process.pid, "a", time.time() + 0.05))
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
        server.stop()


def test_the_queue_gives_what_it_has_and_waits_no_longer_than_told(mp_queue):
    requests = MultiprocessingRequestQueue(mp_queue)
    assert requests.get(1, 0) == []
    sent = [TimerRequest(2, str(number), 1.0) for number in range(3)]
    for request in sent:
        mp_queue.put(request)
    assert requests.get(2, DEADLINE_S) == sent[:2]
    assert requests.get(5, 0.2) == sent[2:]
    assert requests.size() == 0
