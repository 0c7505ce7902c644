"""The thread of a timer server that runs without an event loop."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress

from holdfast.errors.notice import notice
from holdfast.signals import leave_to_main_thread
from holdfast.waiting import poll_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_S = 1.0
"""The pause after a step that failed."""

_WAKE_READ_BYTES = 4096


class WatchThread:
    """Calls `step` at once, and again when `fd` is readable or when the seconds that `step` returned have passed.

    If `step` returns infinity, the thread sleeps until it is woken. If it returns None, the thread ends. Without an
    `fd`, `step` does the waiting.
    """

    def __init__(self, name: str, step: Callable[[], float | None], fd: int | None, *, daemon: bool) -> None:
        self._name = name
        self._step = step
        self._fds = [] if fd is None else [fd]
        self._stopping = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=daemon)
        self._thread.start()

    def wake(self) -> None:
        """Have `step` called soon. Does nothing inside a step, which returns its own wait."""
        if threading.get_ident() == self._thread.ident:
            return
        with suppress(BlockingIOError):  # the pipe is full: the thread will wake up anyway
            os.write(self._waker, b"\0")

    def stop(self) -> None:
        """End the thread after its current step, and wait for it."""
        self._stopping = True
        self.wake()
        self._thread.join()
        os.close(self._woken)
        os.close(self._waker)

    def _run(self) -> None:
        leave_to_main_thread()
        while not self._stopping:
            fds = self._fds
            try:
                wait_s = self._step()
            except Exception as error:  # noqa: BLE001 - queues and requests are the user's, and may raise anything
                notice(f"{self._name}: {error!r}; trying again in {RETRY_S} s")
                fds, wait_s = [], RETRY_S
            if wait_s is None:
                return
            self._wait(fds, wait_s)

    def _wait(self, fds: list[int], wait_s: float) -> None:
        poll = select.poll()
        for fd in (self._woken, *fds):
            poll.register(fd, select.POLLIN)
        poll.poll(poll_ms(wait_s))
        with suppress(BlockingIOError):
            os.read(self._woken, _WAKE_READ_BYTES)
