"""A table of all processes' timers, without a clock or a process."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.watchdog.request import FileTimerRequest

WAIT_MAX_S = 86_400.0
"""The longest wait for an expiry, even for a later one: poll accepts at most 24 days."""


class Timers:
    """The timers that are set, by process and scope. Times are Unix seconds, as in the requests."""

    __slots__ = ("_by_pid",)

    def __init__(self) -> None:
        self._by_pid: dict[int, dict[str, FileTimerRequest]] = {}

    def register(self, request: FileTimerRequest) -> None:
        """Set the timer, replacing an earlier one of the same scope, or release it."""
        if request.is_release:
            self._remove(request)
        else:
            self._by_pid.setdefault(request.worker_pid, {})[request.scope_id] = request

    def clear(self, pids: Iterable[int]) -> None:
        """Release all timers of these processes."""
        for pid in pids:
            self._by_pid.pop(pid, None)

    def expired(self, now: float) -> dict[int, list[FileTimerRequest]]:
        """The expired timers, by process, the earliest first."""
        found = {
            pid: sorted(
                (timer for timer in scopes.values() if timer.expiration_time <= now),
                key=lambda timer: timer.expiration_time,
            )
            for pid, scopes in self._by_pid.items()
        }
        return {pid: timers for pid, timers in found.items() if timers}

    def take_expired(self, now: float) -> dict[int, list[FileTimerRequest]]:
        """Return the expired timers as `expired` does, and release them: each expires once."""
        found = self.expired(now)
        for timers in found.values():
            for timer in timers:
                self._remove(timer)
        return found

    def next_expiry(self) -> float | None:
        """The earliest expiration time; None if no timer is set."""
        return min(
            (timer.expiration_time for scopes in self._by_pid.values() for timer in scopes.values()), default=None
        )

    def pids(self) -> set[int]:
        """The processes that have timers."""
        return set(self._by_pid)

    def __len__(self) -> int:
        return sum(map(len, self._by_pid.values()))

    def __contains__(self, key: tuple[int, str]) -> bool:
        """Whether the timer (process, scope) is set."""
        pid, scope_id = key
        return scope_id in self._by_pid.get(pid, ())

    def _remove(self, request: FileTimerRequest) -> None:
        scopes = self._by_pid.get(request.worker_pid, {})
        scopes.pop(request.scope_id, None)
        if not scopes:
            self._by_pid.pop(request.worker_pid, None)


def choose_signal(expired: Iterable[FileTimerRequest]) -> FileTimerRequest | None:
    """The first of a process's expired timers that has a signal to send; None if all are for the log."""
    return next((timer for timer in expired if timer.signal > 0), None)
