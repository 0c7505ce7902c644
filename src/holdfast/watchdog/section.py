"""Sections of a program with a deadline."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import _GeneratorContextManager


class TimerClient(ABC):
    """Sends this worker's deadlines to a timer server."""

    @abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Have this worker ended at the Unix time `expiration_time`, unless the scope is released first."""

    @abstractmethod
    def release(self, scope_id: str) -> None:
        """Release the scope's timer, if it is set."""


_configured: list[TimerClient | None] = []
"""What `configure` was last given; empty if it was not called."""


def configure(timer_client: TimerClient | None) -> None:
    """Set this process's default client for `expires`. None means none, also where the agent has a watchdog."""
    _configured[:] = [timer_client]


def expires(
    after: float, scope: str | None = None, client: TimerClient | None = None
) -> _GeneratorContextManager[None]:
    """End this worker if the section takes longer than `after` seconds.

        with expires(after=60):
            all_reduce(...)

        @expires(after=60)
        def step(): ...

    Args:
        after: seconds from entering the section, or from calling the decorated function.
        scope: the deadline's name; by default where `expires` was called, `<file>#<line>`. Sections that are active
            at the same time need different names.
        client: the client to use; by default the one given to `configure`, else the watchdog of this worker's agent.

    Raises:
        RuntimeError: on entering, if there is no client, none was configured, and the agent has no watchdog.
    """
    if scope is None:
        caller = sys._getframe(1)  # noqa: SLF001 - as `inspect` does, at a hundredth of the cost
        scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
    return _section(after, scope, client)


@contextmanager
def _section(after: float, scope: str, client: TimerClient | None) -> Iterator[None]:
    client = client or _default_client()
    client.acquire(scope, time.time() + after)
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the exception from the section matters more
            client.release(scope)
        raise
    client.release(scope)


def _default_client() -> TimerClient:
    """The client, chosen on entering, so that functions can be decorated before it is configured."""
    if _configured and _configured[0] is not None:
        return _configured[0]
    from holdfast.watchdog.fifo import TIMER_FILE_VARIABLE

    path = None if _configured else os.environ.get(TIMER_FILE_VARIABLE)
    if not path:
        raise RuntimeError(
            "expires() needs a watchdog: call holdfast.watchdog.configure(client) first, give it a client, or "
            f"start the job with TORCHELASTIC_ENABLE_FILE_TIMER=1, which sets {TIMER_FILE_VARIABLE} in its workers"
        )
    from holdfast.watchdog.fifo_client import FileTimerClient

    return FileTimerClient(path)
