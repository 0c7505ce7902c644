"""The worker's end of the named pipe."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from signal import SIGKILL, valid_signals

from holdfast.waiting import poll_ms
from holdfast.watchdog.fifo import LINE_MAX_BYTES
from holdfast.watchdog.request import FileTimerRequest
from holdfast.watchdog.section import TimerClient

OPEN_ATTEMPTS = 10
"""How often to try to reach a server that is not there."""

OPEN_PAUSE_S = 0.1
"""The pause between two attempts."""

ROOM_WAIT_S = 10.0
"""How long to wait for a server that does not empty a full pipe. An agent reads it at least every 5 s, whatever else it
does.
"""

_COMING_ERRORS = {errno.ENOENT, errno.ENXIO, errno.EPIPE}
"""No pipe yet, no reader yet, no reader any more: the server may still be starting."""


class FileTimerClient(TimerClient):
    """Sets timers on the calling process with the server that reads the named pipe `file_path`.

    Args:
        file_path: the pipe; the agent's is in the environment variable TORCHELASTIC_TIMER_FILE.
        signal: the signal to send to this process when a timer expires; 0 or less only logs it.

    Raises:
        ValueError: there is no such signal.
    """

    def __init__(self, file_path: str, signal: int = SIGKILL) -> None:
        if signal > 0 and signal not in valid_signals():
            raise ValueError(
                f"{signal!r} is not a signal of this system; give one such as signal.SIGKILL, or 0 for none"
            )
        self._file_path = file_path
        self._signal = signal

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Have this process signalled at the Unix time `expiration_time`, unless the scope is released first.

        Raises:
            BrokenPipeError: no server reads the pipe.
            TimeoutError: a server has the pipe open but does not read it.
            RuntimeError: the scope's name is too long.
        """
        self._send_request(FileTimerRequest(os.getpid(), scope_id, expiration_time, self._signal))

    def release(self, scope_id: str) -> None:
        """Release the timer, if it is set. Raises the same errors as `acquire`."""
        self._send_request(FileTimerRequest(os.getpid(), scope_id, -1, 0))

    def _send_request(self, request: FileTimerRequest) -> None:
        line = f"{request.to_json()}\n".encode()
        if len(line) > LINE_MAX_BYTES:
            raise RuntimeError(
                f"a request of {len(line)} bytes is too long for the watchdog's pipe, which takes "
                f"{LINE_MAX_BYTES} bytes; give the scope a shorter name than {request.scope_id[:40]!r}..."
            )
        reason: OSError | None = None
        for attempt in range(OPEN_ATTEMPTS):
            if attempt:
                time.sleep(OPEN_PAUSE_S)
            try:
                return self._write(line)
            except TimeoutError:
                raise
            except OSError as error:
                reason = error
                if error.errno not in _COMING_ERRORS:
                    break
        raise BrokenPipeError(
            errno.EPIPE,
            f"no watchdog can be reached for the timer {request.scope_id!r} ({reason}); is the server started, in "
            "the agent of this worker?",
            self._file_path,
        ) from reason

    def _write(self, line: bytes) -> None:
        fd = os.open(self._file_path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a named pipe", self._file_path)
            deadline = time.monotonic() + ROOM_WAIT_S
            while not _try_write(fd, line):
                wait_s = deadline - time.monotonic()
                if wait_s <= 0:
                    raise TimeoutError(
                        errno.ETIMEDOUT,
                        f"the watchdog has not read its full pipe for {ROOM_WAIT_S} s; is the agent stopped or stuck?",
                        self._file_path,
                    )
                _wait_for_room(fd, wait_s)
        finally:
            os.close(fd)


def _try_write(fd: int, line: bytes) -> bool:
    """Write the whole line or nothing: writes up to PIPE_BUF are atomic."""
    try:
        os.write(fd, line)
    except BlockingIOError:
        return False
    return True


def _wait_for_room(fd: int, wait_s: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll(poll_ms(wait_s))
