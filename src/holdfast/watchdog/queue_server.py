"""The watchdog for workers whose deadlines come through a queue: the part that all queues and workers share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from holdfast.errors.notice import notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.watchdog.request import TimerRequest
    from holdfast.watchdog.watching import WatchThread


class RequestQueue(ABC):
    """The source of a server's requests."""

    @abstractmethod
    def size(self) -> int:
        """The approximate number of requests in the queue."""

    @abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests, or those that arrive within `timeout` seconds."""

    def fileno(self) -> int | None:
        """A descriptor that is readable when there are requests; None for a queue without one.

        With a descriptor, a server sleeps until there is something to do, and stops at once.
        """
        return None


class TimerServer(ABC):
    """Ends workers that miss their deadlines. A subclass defines what a worker is, and stores the timers.

    Args:
        request_queue: where the workers' requests come from.
        max_interval: seconds until the next check at the latest, for a queue without a descriptor and after a
            worker could not be ended.
        daemon: whether the interpreter may exit while the thread runs.
    """

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        self._request_queue = request_queue
        self._max_interval = max_interval
        self._daemon = daemon
        self._fd: int | None = None
        self._thread: WatchThread | None = None

    @abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set timers; a request with a negative time releases its timer."""

    @abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Release all timers of these workers."""

    @abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """The timers that will have expired at the Unix time `deadline`, by worker."""

    @abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a worker. Returns False if that must be retried."""

    def _wait_s(self) -> float:
        """How many seconds the server may sleep, unless requests arrive."""
        return self._max_interval

    def start(self) -> None:
        """Begin to watch, in a thread. A server that watches already goes on."""
        if self._thread is not None:
            return
        from holdfast.watchdog.watching import WatchThread

        self._fd = self._request_queue.fileno()
        self._thread = WatchThread("watchdog", self._step, self._fd, daemon=self._daemon)

    def stop(self) -> None:
        """End the thread, after its current step; for a queue without a descriptor that takes up to `max_interval`."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.stop()

    def _step(self) -> float | None:
        try:
            # Take all requests: a release that came in time must count before any worker is ended.
            size = max(1, self._request_queue.size())
            requests = self._request_queue.get(size, self._bounded_wait_s() if self._fd is None else 0.0)
        except (OSError, ValueError, EOFError) as error:
            notice(f"watchdog: the queue of requests is closed ({error}); timers are no longer watched")
            return None
        self._run_watchdog(requests)
        return 0.0 if self._fd is None else self._wait_s()

    def _bounded_wait_s(self) -> float:
        return max(0.0, min(self._wait_s(), self._max_interval))

    def _run_watchdog(self, requests: list[TimerRequest]) -> None:
        self.register_timers(requests)
        expired = self.get_expired_timers(time.time())
        self.clear_timers({worker_id for worker_id in expired if self._reap_worker_no_throw(worker_id)})

    def _reap_worker_no_throw(self, worker_id: Any) -> bool:
        try:
            return self._reap_worker(worker_id)
        except Exception as error:  # noqa: BLE001 - the other workers still have to be ended
            notice(f"watchdog: worker {worker_id!r} could not be ended: {error!r}")
            return False
