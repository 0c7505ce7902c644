"""The keeper's reports to its agent, one line each. The keeper must not block, even if the agent does not read."""

from __future__ import annotations

import os
from select import POLLOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Reports:
    """Writes lines to `fd`, which does not block. What the agent does not read yet is kept for later.

    `watch` has a handler called when a descriptor is ready, until `forget`.
    """

    def __init__(
        self, fd: int, watch: Callable[[int, Callable[[], object], int], object], forget: Callable[[int], object]
    ) -> None:
        self._fd = fd
        self._watch = watch
        self._forget = forget
        self._is_watched = False
        self._untold = b""

    def tell(self, line: str) -> None:
        """Report a line. One that contains line breaks stays one line."""
        self._untold += os.fsencode(line.replace("\n", "?")) + b"\n"
        self._write()

    def _write(self) -> None:
        try:
            while self._untold:
                self._untold = self._untold[os.write(self._fd, self._untold) :]
        except BlockingIOError:
            if not self._is_watched:
                self._is_watched = True
                self._watch(self._fd, self._write, POLLOUT)
            return
        except BrokenPipeError:
            self._untold = b""  # the agent is gone; its pidfd or its command pipe reports that
        if self._is_watched:
            self._is_watched = False
            self._forget(self._fd)
