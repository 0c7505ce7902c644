"""Signs of life, and the request to stop: a worker's end of the page that it shares with its agent."""

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
    """Say that this worker makes progress; `step` is how far it is, if it counts.

    Costs a few stores to memory, and no system call after the first time: call it in every step.
    """
    numbers = _numbers if _numbers is not None else _open().numbers
    numbers[STEP] = step
    numbers[BEAT_NS] = _now_ns()
    numbers[BEATS] += 1


def stop_requested() -> bool:
    """Whether this worker should save what it needs and exit with 0: its machine is to be freed, or others wait to
    join.

    A program that asks is given time: `holdfast run --stop-grace SECONDS` after the request. It costs no system call
    after the first time. All workers of the job are asked, but not at the same instant: those that work in lockstep
    have to agree among themselves on the step that is the last.
    """
    numbers = _numbers if _numbers is not None else _open().numbers
    numbers[LISTENS] = 1
    return bool(numbers[STOP_NS])


def stop_reason() -> str:
    """Why this worker is to stop, for people; "" while it is not."""
    return (_page or _open()).reason if stop_requested() else ""


def time_left_s() -> float:
    """How many seconds this worker has before it is stopped; infinite while nobody has asked."""
    numbers = _numbers if _numbers is not None else _open().numbers
    deadline_ns: int = numbers[STOP_NS]
    return max(0.0, (deadline_ns - _now_ns()) / 1e9) if deadline_ns else float("inf")


def on_stop(callback: Callable[[str], object]) -> None:
    """Call `callback` with the reason, in a thread of its own, when this worker is to stop.

    For programs that do not come by often enough to ask. If it was asked to stop before, the call is made now.
    """
    import threading

    path = os.environ.get(VARIABLE)
    if not path:
        return
    fifo = f"{path}{FIFO_SUFFIX}"
    try:
        if not os.path.exists(fifo):
            os.mkfifo(fifo, 0o600)
        # Also for writing: opening does not wait for the agent then, and reading never comes to an end.
        listener = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # as in `_open`: there is nobody who could ask

    def listen() -> None:
        # Looked at after the pipe is there: a request that comes before this line is seen, a later one is read.
        if not stop_requested():
            os.read(listener, 1)
            os.write(listener, b"\n")  # for the next callback
        callback(stop_reason())

    (_page or _open()).numbers[LISTENS] = 1
    threading.Thread(target=listen, name="holdfast-on-stop", daemon=True).start()


def _open() -> Page:
    """The page that this worker shares with its agent, or one of its own where there is no agent."""
    global _page, _numbers  # noqa: PLW0603 - one page a process; a lookup that costs less could not be written
    if _page is None:
        path = os.environ.get(VARIABLE)
        try:
            _page = Page.make(path) if path else Page.private()
        except OSError:
            # The agent that this variable is from is gone, or on another machine. A program must not fail for that.
            _page = Page.private()
        _numbers = _page.numbers
    return _page
