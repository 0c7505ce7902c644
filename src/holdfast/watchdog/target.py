"""A process to signal later, held so that a reused pid cannot hit another process."""

from __future__ import annotations

import os
import select
import signal


class Target:
    """The process that has this pid now.

    It is held by a pidfd: after it has ended, a signal never hits another process that got the same pid. If the
    kernel gives no pidfd, the pid is used.

    Raises:
        ProcessLookupError: there is no such process.
    """

    __slots__ = ("_pidfd", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd: int | None = None
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except (OSError, AttributeError):  # no pidfd on this platform or in this sandbox, or too many open descriptors
            if not _exists(pid):
                raise ProcessLookupError(pid) from None

    def is_alive(self) -> bool:
        """Whether it has not ended; a zombie has ended."""
        if self._pidfd is None:
            return _exists(self.pid)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def send(self, signum: int) -> None:
        """Send a signal.

        Raises:
            OSError: it has ended (ProcessLookupError), or belongs to another user (PermissionError).
        """
        if self._pidfd is None:
            os.kill(self.pid, signum)
        else:
            signal.pidfd_send_signal(self._pidfd, signum)

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def is_running(pid: int) -> bool:
    """Whether a process has this pid and has not ended."""
    if pid <= 0:
        return False
    try:
        target = Target(pid)
    except ProcessLookupError:
        return False
    try:
        return target.is_alive()
    finally:
        target.close()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
