"""Detect workers that are alive but make no progress.

For a program that sends heartbeats, only heartbeats count from the first one on. For any other, the agent can only see
whether the worker, or a process that it started, writes output or uses the CPU. A worker that waits for a peer in a
busy loop uses the CPU; only heartbeats show that it hangs.

All times are of the monotonic clock. Heartbeats in the shared pages use the same clock.
"""

from __future__ import annotations

import math
import os

from holdfast import procfs
from holdfast.agent.shared_memory import read_page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOOKS_PER_TIMEOUT = 4
"""How often a worker without heartbeats is checked in one timeout. So a hang is seen after 1 to 1.25 timeouts."""

CPU_IDLE_SHARE = 0.02
"""A worker that uses the CPU for less than this share of the time only waits, for example in threads that check a
clock.
"""

LATE_MIN_S = 5.0
"""If the agent looks later than this after it was due, it was stopped itself, and perhaps its workers, too."""

FAMILY_MAX = 256
"""How many processes of a worker are checked: itself and its descendants, such as compilers started by build tools."""

_CONSOLES = (1, 2)

_STATES = {"T": "it is stopped by a signal", "t": "a debugger has stopped it", "D": "it is stuck in the kernel"}


class Hung:
    """A worker that made no progress for `since_s`, and how that was seen."""

    __slots__ = ("local_rank", "since_s", "why")

    def __init__(self, local_rank: int, since_s: float, why: str) -> None:
        self.local_rank = local_rank
        self.since_s = since_s
        self.why = why

    def __repr__(self) -> str:
        return f"Hung({self.local_rank}, {self.since_s:.1f} s, {self.why!r})"


class Reading:
    """One observation of a worker.

    Attributes:
        beats: the number of heartbeats so far.
        beat_at: the time of the last heartbeat.
        step: the step of the last heartbeat; -1 if it named none.
        output_bytes: how much the worker has written.
        cpu_s: its CPU time, with that of its children.
        state: the letter of its process's state.
    """

    __slots__ = ("beat_at", "beats", "cpu_s", "output_bytes", "state", "step")

    def __init__(
        self,
        *,
        beats: int = 0,
        beat_at: float = 0.0,
        step: int = -1,
        output_bytes: int = 0,
        cpu_s: float = 0.0,
        state: str = "S",
    ) -> None:
        self.beats = beats
        self.beat_at = beat_at
        self.step = step
        self.output_bytes = output_bytes
        self.cpu_s = cpu_s
        self.state = state


class WorkerClock:
    """Measures how long one worker has made no progress. Pure: times and readings are arguments."""

    __slots__ = ("_last", "_progress_at", "_seen_at", "_timeout_s", "next_look_at")

    def __init__(self, timeout_s: float, now: float) -> None:
        self._timeout_s = timeout_s
        self._last: Reading | None = None
        self._seen_at = now
        self._progress_at = now
        self.next_look_at = now + timeout_s / LOOKS_PER_TIMEOUT

    def take_in(self, reading: Reading, now: float) -> None:
        """Take in the reading at `now`, which is `next_look_at` or later."""
        if reading.beats > 0:
            self._progress_at = max(self._progress_at, min(reading.beat_at, now))
            self.next_look_at = self._progress_at + self._timeout_s
        else:
            if self._has_moved(reading, now):
                self._progress_at = now
            self.next_look_at = now + self._timeout_s / LOOKS_PER_TIMEOUT
        if self.next_look_at <= now:  # it hangs, and the caller did not end it
            self.next_look_at = now + self._timeout_s / LOOKS_PER_TIMEOUT
        self._last, self._seen_at = reading, now

    def _has_moved(self, reading: Reading, now: float) -> bool:
        if self._last is None:
            return reading.output_bytes > 0 or reading.cpu_s >= CPU_IDLE_SHARE * (now - self._seen_at)
        cpu_s = reading.cpu_s - self._last.cpu_s
        if cpu_s < 0:  # a child has ended without being waited for
            return True
        return reading.output_bytes != self._last.output_bytes or cpu_s >= CPU_IDLE_SHARE * (now - self._seen_at)

    def forgive(self, now: float) -> None:
        """Start the measurement again: the time until now is unknown."""
        self._progress_at = now

    def stall_s(self, now: float) -> float:
        """How long there was no progress, if that is too long; else 0."""
        is_over = self._last is not None and now >= self._progress_at + self._timeout_s
        return now - self._progress_at if is_over else 0.0

    def why(self, stall_s: float) -> str:
        assert self._last is not None
        state = _STATES.get(self._last.state)
        after = f"; {state}" if state else ""
        if self._last.beats > 0:
            step = f", the last one at step {self._last.step}" if self._last.step >= 0 else ""
            return f"no heartbeat for {stall_s:.0f} s{step}{after}"
        return f"no output and no CPU use for {stall_s:.0f} s{after}"


class WatchedWorker:
    """A worker's process, and the path of its page, which a worker that sends heartbeats creates."""

    __slots__ = ("_page_path", "pid")

    def __init__(self, pid: int, page_path: str) -> None:
        self.pid = pid
        self._page_path = page_path

    def read(self, output_bytes: int) -> Reading | None:
        """Read the worker's current values; None if it has ended."""
        from holdfast.worker.shared_memory import BEAT_NS, BEATS, STEP

        stat = _stat(self.pid)
        if stat is None:
            return None
        state, cpu_s = stat
        family = _family(self.pid)
        numbers = read_page(self._page_path)
        return Reading(
            beats=0 if numbers is None else numbers[BEATS],
            beat_at=0.0 if numbers is None else numbers[BEAT_NS] / 1e9,
            step=-1 if numbers is None else numbers[STEP],
            output_bytes=output_bytes + _unheard_bytes(family),
            cpu_s=cpu_s + sum(found[1] for pid in family[1:] if (found := _stat(pid)) is not None),
            state=state,
        )


class Progress:
    """Watches the workers of one attempt, which started at `now`.

    `output_bytes` returns how much each worker has written so far, by local rank. A missing rank has written nothing.
    """

    def __init__(
        self,
        timeout_s: float,
        workers: Mapping[int, WatchedWorker],
        output_bytes: Callable[[], Mapping[int, int]],
        now: float,
    ) -> None:
        self.timeout_s = timeout_s
        self._workers = dict(workers)
        self._output_bytes = output_bytes
        self._clocks = {rank: WorkerClock(timeout_s, now) for rank in workers}

    @property
    def next_look_at(self) -> float:
        """When to look next; infinity once all workers have ended."""
        return min((clock.next_look_at for clock in self._clocks.values()), default=math.inf)

    def look(self, now: float) -> list[Hung]:
        """The workers that hang at `now`, by local rank. Before `next_look_at` the list is empty and costs nothing."""
        wanted_at = self.next_look_at
        if now < wanted_at:
            return []
        if now - wanted_at > max(LATE_MIN_S, self.timeout_s / LOOKS_PER_TIMEOUT):
            for clock in self._clocks.values():
                clock.forgive(now)
        written = self._output_bytes()
        for rank, clock in list(self._clocks.items()):
            # Check workers that are due soon, too, so that ranks that wait for each other are found together.
            if clock.next_look_at <= now + self.timeout_s / (2 * LOOKS_PER_TIMEOUT):
                reading = self._workers[rank].read(written.get(rank, 0))
                if reading is None:
                    del self._clocks[rank]
                else:
                    clock.take_in(reading, now)
        stalls = {rank: stall_s for rank, clock in self._clocks.items() if (stall_s := clock.stall_s(now))}
        return [Hung(rank, stall_s, self._clocks[rank].why(stall_s)) for rank, stall_s in sorted(stalls.items())]


def _stat(pid: int) -> tuple[str, float] | None:
    """A process's state and CPU time, with that of children it has waited for; None if it has ended."""
    try:
        stat = procfs.stat(pid)
    except OSError:
        return None
    return None if stat.state in procfs.ENDED else (stat.state, stat.cpu_s)


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for member in found:
        found += _children(member)[: FAMILY_MAX - len(found)]
    return found


def _unheard_bytes(pids: Sequence[int]) -> int:
    """How much those of `pids` have written, to any file, that share this process's stdout or stderr.

    Their output bypasses `output_bytes`. 0 if the kernel does not provide the number.
    """
    written = 0
    for pid in pids:
        try:
            if any(os.path.samestat(os.stat(procfs.descriptor(pid, fd)), os.fstat(fd)) for fd in _CONSOLES):
                written += procfs.written_bytes(pid)
        except OSError:
            continue
    return written


def _children(pid: int) -> list[int]:
    """The children of a process; none if the kernel does not provide them."""
    found: list[int] = []
    try:
        for thread in procfs.threads(pid):
            found += procfs.children(pid, thread)
    except OSError:  # the process or one of its threads is ending
        pass
    return found
