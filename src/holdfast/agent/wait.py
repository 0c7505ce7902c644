"""One wait for whatever comes first: news from a descriptor, a deadline, or a signal to this process."""

from __future__ import annotations

import select
import time

from holdfast.processes.interruption import SignalWakeUp, Uninterrupted, handlers
from holdfast.waiting import poll_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Source(Protocol):
        """Something with a descriptor that is readable when there is news."""

        def fileno(self) -> int: ...


class Wait:
    """A wait that ends with the first of its sources, the nearest of its deadlines, or a signal.

    Without a source and a deadline, only a signal ends it. `poll` is for parts that register descriptors themselves.
    """

    def __init__(self) -> None:
        self.poll = select.poll()
        self.wait_s: float | None = None
        """How long it waits at most; None for no limit."""

    def add(self, source: int | Source | None) -> None:
        """End the wait when `source` is readable. None is no source."""
        if source is not None:
            self.poll.register(source, select.POLLIN)

    def at_most(self, wait_s: float | None) -> None:
        """End the wait after this time. None is no limit."""
        if wait_s is not None:
            self.wait_s = wait_s if self.wait_s is None else min(self.wait_s, wait_s)

    def until(self, at: float | None) -> None:
        """End the wait at this monotonic time. None is no limit."""
        self.at_most(None if at is None else max(0.0, at - time.monotonic()))

    def run(self) -> None:
        """Wait. A signal that this process handles is raised, even if it came before the wait."""
        with Uninterrupted(), SignalWakeUp() as signals:
            self.add(signals.fd)
            handlers.raise_pending(sections=1)
            self.poll.poll(poll_ms(self.wait_s))


def pause_until(at: float) -> None:
    """Wait until this monotonic time. A signal that this process handles is raised."""
    while time.monotonic() < at:
        wait = Wait()
        wait.until(at)
        wait.run()
