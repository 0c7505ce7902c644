"""The watchdog of an agent: timers that workers set for sections of their own, and that end a worker when they expire.

It is used if the variable `TORCHELASTIC_ENABLE_FILE_TIMER` is 1. Nothing of it is imported otherwise.
"""

from __future__ import annotations

import os
import time
from select import POLLIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from select import poll

    from holdfast.watchdog import FileTimerRequest, FileTimerServer

TORCHELASTIC_ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TORCHELASTIC_TIMER_FILE = "TORCHELASTIC_TIMER_FILE"


class Timers:
    """The timers of one agent's workers, in all attempts. `record` writes down what happens to them."""

    def __init__(self, run_id: Callable[[], str], record: Callable[[str, int | None, str], None]) -> None:
        self._run_id = run_id
        self._record = record
        self._server: FileTimerServer | None = None
        self._file = ""
        self._expired: dict[int, str] = {}

    def begin(self, envs: Mapping[int, dict[str, str]]) -> None:
        """Begin an attempt: tell its workers where to set timers, if the user wants them."""
        self._expired.clear()
        if os.environ.get(TORCHELASTIC_ENABLE_FILE_TIMER) != "1":
            return
        if self._server is None:
            from holdfast.watchdog import FileTimerServer

            self._file = os.environ.get(TORCHELASTIC_TIMER_FILE) or os.path.join(
                os.environ.get("TMPDIR", "/tmp"),  # noqa: S108 - the name is random, and the pipe is private
                f"watchdog_timer_{os.urandom(16).hex()}",
            )
            self._server = FileTimerServer(self._file, self._run_id(), log_event=self._note)
            self._server.start(in_thread=False)
        for env in envs.values():
            env[TORCHELASTIC_TIMER_FILE] = self._file

    def register(self, poll: poll) -> None:
        """Wake the agent up for a request of a worker."""
        if self._server is not None:
            poll.register(self._server, POLLIN)

    def wait_s(self) -> float | None:
        """How long until the next timer expires; None if there is none."""
        expires = None if self._server is None else self._server.next_deadline()
        return None if expires is None else max(0.0, expires - time.time())

    def read(self) -> None:
        """Read requests, and end nobody. An agent that is busy calls it, so that the pipe does not stay full for as
        long as a worker waits for room in it.
        """
        if self._server is not None:
            self._server.read()

    def look(self, before_kill: Callable[[list[int]], None]) -> None:
        """Read requests, and end workers whose timer has expired. `before_kill` gets their pids: then it is too late to
        ask them anything.
        """
        if self._server is None:
            return
        self._server.read()
        now = time.time()
        overdue = list(self._server.get_expired_timers(now))
        if overdue:
            before_kill(overdue)
        self._server.expire(now)

    def expired_in(self, pid: int) -> str | None:
        """The section in which a timer of this worker expired in this attempt; None if none did."""
        return self._expired.get(pid)

    def last_progress(self) -> float:
        """The time of the last progress: the watchdog's, or else now, because an agent that only waits is healthy."""
        return time.time() if self._server is None else float(self._server.get_last_progress_time())

    def attempt_ended(self) -> None:
        """Forget the timers of workers that are gone. The pipe stays for the next attempt, because a disk that is full
        by then has no room for a new one.
        """
        if self._server is not None:
            self._server.forget()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _note(self, name: str, request: FileTimerRequest | None) -> None:
        scope = "" if request is None else request.scope_id
        if request is not None and name == "timer expired":
            self._expired.setdefault(request.worker_pid, scope)
        self._record(name, None if request is None else request.worker_pid, scope)
