"""A worker's request to the watchdog, and the line of JSON that carries it through a named pipe."""

from __future__ import annotations

import signal as signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
"""The version of the line's format. Readers ignore it so far."""

PID_MAX = 2**31 - 1
"""The largest process id that system calls accept."""


class TimerRequest:  # noqa: PLW1641 - not hashable, since it is mutable
    """A request to set or release a timer.

    Attributes:
        worker_id: the worker that the timer belongs to; the process id if workers are processes.
        scope_id: which of the worker's timers. A second request for the same scope replaces the first.
        expiration_time: the deadline in Unix seconds. A negative value releases the timer.
    """

    __slots__ = ("expiration_time", "scope_id", "worker_id")

    def __init__(self, worker_id: Any, scope_id: str, expiration_time: float) -> None:
        self.worker_id = worker_id
        self.scope_id = scope_id
        self.expiration_time = expiration_time

    @property
    def is_release(self) -> bool:
        """Whether this request releases the timer."""
        return self.expiration_time < 0

    def _fields(self) -> dict[str, object]:
        return {
            "worker_id": self.worker_id,
            "scope_id": self.scope_id,
            "expiration_time": self.expiration_time,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._fields().items())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimerRequest):
            return NotImplemented
        return type(self) is type(other) and self._fields() == other._fields()


class FileTimerRequest(TimerRequest):
    """A request from a process, with the signal that should end it; 0 or less only logs the expiry."""

    __slots__ = ("signal", "version")

    def __init__(self, worker_pid: int, scope_id: str, expiration_time: float, signal: int = 0) -> None:
        super().__init__(worker_pid, scope_id, expiration_time)
        self.version = VERSION
        self.signal = signal

    @property
    def worker_pid(self) -> int:
        pid: int = self.worker_id
        return pid

    def _fields(self) -> dict[str, object]:
        return {
            "worker_pid": self.worker_id,
            "scope_id": self.scope_id,
            "expiration_time": self.expiration_time,
            "signal": self.signal,
        }

    def to_json(self) -> str:
        """The request as a line of JSON, without the line feed; the same bytes as torch writes."""
        import json

        return json.dumps(
            {
                "version": self.version,
                "pid": self.worker_id,
                "scope_id": self.scope_id,
                "expiration_time": self.expiration_time,
                "signal": int(self.signal),
            }
        )


def parse_request(line: bytes) -> FileTimerRequest:
    """Parse a line.

    Raises:
        ValueError: the line is not a request; the message says why.
    """
    import json

    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(message, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - callers expect ValueError for any bad line
    pid, scope_id, signal = message.get("pid"), message.get("scope_id"), message.get("signal")
    # Not isinstance: bool is a subclass of int.
    if type(pid) is not int or not 0 < pid <= PID_MAX:
        raise ValueError("its pid is not a process id")
    if type(scope_id) is not str:
        raise ValueError("its scope_id is not a text")
    if type(signal) is not int or (signal > 0 and signal not in signals.valid_signals()):
        raise ValueError("its signal is not a signal number")
    return FileTimerRequest(pid, scope_id, _parse_time(message.get("expiration_time")), signal)


def _parse_time(value: object) -> float:
    """Infinity is accepted: such a timer never expires."""
    try:
        if type(value) in (int, float) and value == value:  # noqa: PLR0124 - rejects NaN
            return float(value)  # type: ignore[arg-type]  # a number, by its type
    except OverflowError:
        pass
    raise ValueError("its expiration_time is not a number of seconds")
