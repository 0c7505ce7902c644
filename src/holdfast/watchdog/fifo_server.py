"""The watchdog for processes that write their deadlines to a named pipe."""

from __future__ import annotations

import _thread
import math
import time

from holdfast.errors.notice import notice
from holdfast.errors.text import headline, visible
from holdfast.watchdog.deadlines import Deadlines
from holdfast.watchdog.fifo import LINE_MAX_BYTES, RequestPipe
from holdfast.watchdog.request import parse_request
from holdfast.watchdog.target import is_running
from holdfast.watchdog.timers import WAIT_MAX_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.watchdog.deadlines import Expiry
    from holdfast.watchdog.request import FileTimerRequest
    from holdfast.watchdog.watching import WatchThread

COMPLAINTS_MAX = 10
"""How many unusable requests are shown: a worker that writes garbage may write a lot of it."""

LINE_SHOWN_CHARS = 200
"""How much of an unusable request is shown."""


class FileTimerServer:
    """Ends processes that miss the deadlines which they set through the named pipe `file_path`.

    The pipe exists from the start and accepts requests. There are two ways to process them:

    - `start` a thread. It sleeps until a request arrives or a timer expires.
    - Use an event loop: when `fileno` is readable, call `read`; at `next_deadline`, call `expire`. Neither blocks,
      whatever is written to the pipe.

    A process gets the signal that it asked for. The watching process never gets one. Each expiry is reported on stderr.
    `log_event` receives "watchdog started", "timer expired" with each of the timers, "kill worker process" with the
    timer whose signal was sent, and "watchdog stopped".

    Args:
        file_path: where to make the pipe.
        run_id: names the job in messages.
        max_interval: ignored; accepted for programs that still set the polling interval.
        daemon: whether the interpreter may exit while the thread runs.
        log_event: called with the name of each event and its timer.
        is_worker: whether a process may have timers; workers' own children may want some too. None accepts all.

    Raises:
        InputError: the pipe cannot be made.
    """

    def __init__(
        self,
        file_path: str,
        run_id: str,
        max_interval: float = 10,  # noqa: ARG002 - for compatibility
        daemon: bool = True,
        log_event: Callable[[str, FileTimerRequest | None], None] | None = None,
        *,
        is_worker: Callable[[int], bool] | None = None,
    ) -> None:
        self._run_id = run_id
        self._daemon = daemon
        self._log_event = log_event
        self._deadlines = Deadlines(is_worker)
        self._complaints = 0
        # Guards the pipe and the deadlines together: requests apply in the order in which they were written.
        self._lock = _thread.allocate_lock()
        self._thread: WatchThread | None = None
        self._pipe: RequestPipe | None = RequestPipe(file_path)
        self._file_path = file_path

    def start(self, *, in_thread: bool = True) -> None:
        """Begin to watch: in a thread, or with `in_thread=False` in the caller's event loop.

        A server that watches already goes on. One that was stopped has no pipe any more, and raises RuntimeError.
        """
        if self._pipe is None:
            raise RuntimeError(f"the watchdog at {self._file_path} was stopped; make a new FileTimerServer")
        if self._thread is not None:
            return
        if in_thread:
            from holdfast.watchdog.watching import WatchThread

            self._thread = WatchThread("watchdog", self._step, self.fileno(), daemon=self._daemon)
        self._log("watchdog started", None)

    def stop(self) -> None:
        """End the thread and remove the pipe. Idempotent."""
        if self._pipe is None:
            return
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        with self._lock:
            self._pipe.close()
            self._pipe = None
            self._deadlines.close()
        self._log("watchdog stopped", None)

    def run_once(self) -> None:
        """Process all requests written so far, and signal overdue processes. A running thread is not affected."""
        self.read()
        self.expire()

    def fileno(self) -> int:
        """The pipe's descriptor: readable when `read` has requests to process."""
        if self._pipe is None:
            raise RuntimeError(f"the watchdog at {self._file_path} was stopped")
        return self._pipe.fileno()

    def read(self) -> None:
        """Process the requests written so far. The work is bounded, even if a process writes without pause."""
        with self._lock:
            if self._pipe is not None:
                for line in self._pipe.read():
                    self._take_in(line)

    def next_deadline(self) -> float | None:
        """The Unix time at which to call `expire`, as of now; None if no timer is set.

        Deadlines are in Unix time, so this is too: wait for the difference to `time.time()`. It is at most a day
        away, so that any poll can wait for it, whatever deadlines the workers set.
        """
        with self._lock:
            expiry = self._deadlines.timers.next_expiry()
        return None if expiry is None else min(expiry, time.time() + WAIT_MAX_S)

    def expire(self, now: float | None = None) -> list[Expiry]:
        """Signal the processes that are overdue at the Unix time `now`. Returns an `Expiry` for each.

        A release that was written in time counts, even if it has not been read yet.
        """
        now = time.time() if now is None else now
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return []
        self.read()
        with self._lock:
            expiries = self._deadlines.expire(now)
        for expiry in expiries:
            self._tell(expiry)
        return expiries

    def register_timers(self, timer_requests: list[FileTimerRequest]) -> None:
        """Set or release timers, as if their processes had written to the pipe."""
        with self._lock:
            for request in timer_requests:
                self._register(request)
        if self._thread is not None:
            self._thread.wake()

    def clear_timers(self, worker_pids: set[int]) -> None:
        """Release all timers of these processes."""
        with self._lock:
            self._deadlines.clear(worker_pids)

    def forget(self) -> None:
        """Release all timers, including unread ones in the pipe: their processes have ended."""
        with self._lock:
            if self._pipe is not None:
                self._pipe.read()
                self._deadlines.close()

    def get_expired_timers(self, deadline: float) -> dict[int, list[FileTimerRequest]]:
        """The timers that will have expired at the Unix time `deadline`, by process, the earliest first."""
        with self._lock:
            return self._deadlines.timers.expired(deadline)

    def get_last_progress_time(self) -> int:
        """The Unix time up to which the watchdog has done its work.

        That is now, since it is idle between events. If a timer is overdue and its process was not signalled yet, it
        is that timer's time.
        """
        now = time.time()
        deadline = self.next_deadline()
        return int(now if deadline is None else min(now, deadline))

    @staticmethod
    def is_process_running(pid: int) -> bool:
        """Whether the process runs; a zombie does not."""
        return is_running(pid)

    def _step(self) -> float:
        self.run_once()
        deadline = self.next_deadline()
        return math.inf if deadline is None else deadline - time.time()

    def _take_in(self, line: bytes) -> None:
        try:
            if len(line) >= LINE_MAX_BYTES:
                raise ValueError(f"it is longer than {LINE_MAX_BYTES} bytes")  # noqa: TRY301 - one way to complain
            request = parse_request(line)
        except ValueError as error:
            self._complain(f"{error}: {headline(visible(line.decode('utf-8', 'replace')), LINE_SHOWN_CHARS)}")
        else:
            self._register(request)

    def _register(self, request: FileTimerRequest) -> None:
        refusal = self._deadlines.register(request)
        if refusal is not None:
            self._complain(refusal)

    def _complain(self, reason: str) -> None:
        self._complaints += 1
        if self._complaints <= COMPLAINTS_MAX:
            last = "" if self._complaints < COMPLAINTS_MAX else " (no more of these are shown)"
            notice(f"watchdog of {self._run_id}: a request in {self._file_path} is ignored: {reason}{last}")

    def _tell(self, expiry: Expiry) -> None:
        notice(f"watchdog of {self._run_id}: {expiry}")
        for timer in expiry.timers:
            self._log("timer expired", timer)
        if expiry.signal:
            self._log("kill worker process", expiry.deciding)

    def _log(self, name: str, timer: FileTimerRequest | None) -> None:
        if self._log_event is not None:
            try:
                self._log_event(name, timer)
            except Exception as error:  # noqa: BLE001 - a failing listener must not stop the watchdog
                notice(f"watchdog of {self._run_id}: the event {name!r} could not be logged: {error!r}")
