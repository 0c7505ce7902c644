"""The watchdog for local processes that share a multiprocessing queue with it."""

from __future__ import annotations

import _thread
import math
import os
import time
from signal import SIGKILL

from holdfast.errors.notice import notice
from holdfast.errors.text import headline, visible
from holdfast.watchdog.deadlines import Deadlines, Expiry
from holdfast.watchdog.queue_server import RequestQueue, TimerServer
from holdfast.watchdog.request import PID_MAX, FileTimerRequest, TimerRequest
from holdfast.watchdog.section import TimerClient
from holdfast.watchdog.timers import choose_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multiprocessing.queues import Queue

REQUEST_SHOWN_CHARS = 200
"""How much of an invalid request is shown."""


class LocalTimerClient(TimerClient):
    """Sets timers on the calling process with the server at the other end of `mp_queue`."""

    def __init__(self, mp_queue: Queue[TimerRequest]) -> None:
        self._mp_queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Have this process killed at the Unix time `expiration_time`, unless the scope is released first."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        """Release the scope's timer, if it is set."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """Requests from a `multiprocessing.Queue`."""

    def __init__(self, mp_queue: Queue[TimerRequest]) -> None:
        self._mp_queue = mp_queue

    def size(self) -> int:
        return self._mp_queue.qsize()

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        from queue import Empty

        requests: list[TimerRequest] = []
        deadline = time.monotonic() + timeout
        while len(requests) < size:
            try:
                requests.append(self._mp_queue.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                break
        return requests

    def fileno(self) -> int | None:
        """The descriptor of the queue's pipe; None for a queue without one, such as a manager's."""
        reader = getattr(self._mp_queue, "_reader", None)
        return None if reader is None else int(reader.fileno())


class LocalTimerServer(TimerServer):
    """Kills processes that miss the deadlines which they put into `mp_queue`."""

    def __init__(self, mp_queue: Queue[TimerRequest], max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._deadlines = Deadlines()
        self._lock = _thread.allocate_lock()

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set timers; a request with a negative time releases its timer."""
        with self._lock:
            for request in timer_requests:
                refusal = self._register(request)
                if refusal is not None:
                    notice(f"watchdog: a request in the queue is ignored: {refusal}")
        if self._thread is not None:
            self._thread.wake()

    def clear_timers(self, worker_ids: set[int]) -> None:
        """Release all timers of these processes."""
        with self._lock:
            self._deadlines.clear(worker_ids)

    def get_expired_timers(self, deadline: float) -> dict[int, list[TimerRequest]]:
        """The timers that will have expired at the Unix time `deadline`, by process, the earliest first."""
        with self._lock:
            expired = self._deadlines.timers.expired(deadline)
        return {
            pid: [TimerRequest(pid, timer.scope_id, timer.expiration_time) for timer in timers]
            for pid, timers in expired.items()
        }

    def stop(self) -> None:
        """End the thread, and release all timers."""
        super().stop()
        with self._lock:
            self._deadlines.close()

    def _reap_worker(self, worker_id: int) -> bool:
        """Kill the process. Never retried: a missing permission stays missing."""
        with self._lock:
            if not self._deadlines.is_alive(worker_id):
                return True
            timers = self._deadlines.timers.expired(time.time()).get(worker_id, [])
            error = self._deadlines.send(worker_id, SIGKILL)
        notice(f"watchdog: {Expiry(worker_id, timers, choose_signal(timers), error)}")
        return True

    def _wait_s(self) -> float:
        with self._lock:
            expiry = self._deadlines.timers.next_expiry()
        return math.inf if expiry is None else expiry - time.time()

    def _register(self, request: TimerRequest) -> str | None:
        """Set or release a timer. Returns why it was refused, or None. The queue may contain anything."""
        try:
            pid, scope_id, time_s = int(request.worker_id), str(request.scope_id), float(request.expiration_time)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            return f"{headline(visible(repr(request)), REQUEST_SHOWN_CHARS)}: {error}"
        if math.isnan(time_s) or pid > PID_MAX:
            return f"{request!r} has no time or no process"
        return self._deadlines.register(FileTimerRequest(pid, scope_id, time_s, SIGKILL))
