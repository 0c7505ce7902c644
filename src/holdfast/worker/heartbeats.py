"""Heartbeats and the request to stop: the worker's end of the page that it shares with its agent."""

from __future__ import annotations

import os
import time

from holdfast.worker.shared_memory import BEAT_NS, BEATS, FIFO_SUFFIX, LISTENS, STEP, STOP_NS, VARIABLE, Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_page: Page | None = None
_numbers: memoryview | None = None
_now_ns = time.monotonic_ns


def heartbeat(step: int = -1) -> None:
    """Report progress. `step` is the current step, for programs that count steps.

    It costs a few stores to memory, and no system call after the first call: call it in every step.
    """
    numbers = _numbers if _numbers is not None else _open().numbers
    numbers[STEP] = step
    numbers[BEAT_NS] = _now_ns()
    numbers[BEATS] += 1


def stop_requested() -> bool:
    """Whether this worker should save its state and exit with 0: its machine will be freed, or nodes wait to join.

    A program that calls this gets `holdfast run --stop-grace SECONDS` from the request on. The call costs no system
    call after the first one. All workers of the job get the request, but not at the same instant: workers in lockstep
    must agree among themselves on the last step.
    """
    numbers = _numbers if _numbers is not None else _open().numbers
    numbers[LISTENS] = 1
    return bool(numbers[STOP_NS])


def stop_reason() -> str:
    """Why this worker should stop, as text for people; "" without a request."""
    return (_page or _open()).reason if stop_requested() else ""


def time_left_s() -> float:
    """Seconds until this worker is stopped; infinite without a request."""
    numbers = _numbers if _numbers is not None else _open().numbers
    deadline_ns: int = numbers[STOP_NS]
    return max(0.0, (deadline_ns - _now_ns()) / 1e9) if deadline_ns else float("inf")


def on_stop(callback: Callable[[str], object]) -> None:
    """Call `callback` with the reason, in a thread of its own, when this worker should stop.

    For programs that cannot poll `stop_requested` often enough. If the request has already come, the call is made now.
    """
    import threading

    path = os.environ.get(VARIABLE)
    if not path:
        return
    fifo = f"{path}{FIFO_SUFFIX}"
    try:
        if not os.path.exists(fifo):
            os.mkfifo(fifo, 0o600)
        # Also for writing: opening does not wait for the agent, and reading never reaches the end of the file.
        listener = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # as in `_open`: no agent is there to ask

    def listen() -> None:
        # Check after the pipe exists: an earlier request is seen here, a later one is read from the pipe.
        if not stop_requested():
            os.read(listener, 1)
            os.write(listener, b"\n")  # for the next callback
        callback(stop_reason())

    (_page or _open()).numbers[LISTENS] = 1
    threading.Thread(target=listen, name="holdfast-on-stop", daemon=True).start()


def _open() -> Page:
    """The page that this worker shares with its agent; without an agent, a private one."""
    global _page, _numbers  # noqa: PLW0603 - one page a process; a global is the cheapest lookup
    if _page is None:
        path = os.environ.get(VARIABLE)
        try:
            _page = Page.make(path) if path else Page.private()
        except OSError:
            # The agent that set this variable is gone, or on another machine, or its memory file system is full. The
            # program must not fail for that.
            _page = Page.private()
        _numbers = _page.numbers
    return _page
