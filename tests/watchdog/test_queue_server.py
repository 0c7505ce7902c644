from __future__ import annotations

import queue
import threading
import time

import pytest

from holdfast.watchdog import RequestQueue, TimerRequest, TimerServer

DEADLINE_S = 60


class PlainQueue(RequestQueue):
    """One without a descriptor."""

    def __init__(self):
        self.requests = queue.Queue()

    def size(self):
        return self.requests.qsize()

    def get(self, size, timeout):
        try:
            return [self.requests.get(timeout=timeout)][:size]
        except queue.Empty:
            return []


class Server(TimerServer):
    """Its workers are names."""

    def __init__(self, request_queue, max_interval=0.01):
        super().__init__(request_queue, max_interval)
        self.timers = {}
        self.reaped = queue.Queue()
        self.stubborn = set()

    def register_timers(self, timer_requests):
        for request in timer_requests:
            self.timers[request.worker_id, request.scope_id] = request

    def clear_timers(self, worker_ids):
        self.timers = {key: request for key, request in self.timers.items() if key[0] not in worker_ids}

    def get_expired_timers(self, deadline):
        expired = {}
        for request in self.timers.values():
            if 0 <= request.expiration_time <= deadline:
                expired.setdefault(request.worker_id, []).append(request)
        return expired

    def _reap_worker(self, worker_id):
        self.reaped.put(worker_id)
        if worker_id in self.stubborn:
            self.stubborn.remove(worker_id)
            raise OSError("not now")
        return True


@pytest.fixture
def server():
    server = Server(PlainQueue())
    yield server
    server.stop()


def test_any_queue_and_any_worker_will_do(server):
    server.start()
    server._request_queue.requests.put(TimerRequest("early", "a", time.time() + 3600))
    server._request_queue.requests.put(TimerRequest("late", "a", time.time() - 1))
    assert server.reaped.get(timeout=DEADLINE_S) == "late"
    server.stop()
    assert server.timers.keys() == {("early", "a")}
    assert server.reaped.empty()


def test_who_could_not_be_ended_is_tried_again(server, capfd):
    server.stubborn = {"stubborn"}
    server.start()
    server._request_queue.requests.put(TimerRequest("stubborn", "a", 1.0))
    server._request_queue.requests.put(TimerRequest("other", "a", 1.0))
    reaped = [server.reaped.get(timeout=DEADLINE_S) for _ in range(3)]
    assert sorted(reaped) == ["other", "stubborn", "stubborn"]
    server.stop()
    assert server.timers == {}
    assert "worker 'stubborn' could not be ended: OSError('not now')" in capfd.readouterr().err


def test_it_can_be_started_again_and_runs_once(server):
    server.start()
    thread = server._thread
    server.start()
    assert server._thread is thread
    server.stop()
    server.stop()
    server.start()
    server._request_queue.requests.put(TimerRequest("late", "a", 1.0))
    assert server.reaped.get(timeout=DEADLINE_S) == "late"


def test_what_must_be_supplied():
    for interface in (TimerServer, RequestQueue):
        with pytest.raises(TypeError, match="abstract"):
            interface()


def test_the_thread_need_not_keep_the_interpreter(server):
    server.start()
    assert next(thread for thread in threading.enumerate() if thread.name == "watchdog").daemon
