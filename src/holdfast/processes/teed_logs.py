"""Shows the logs of a set that are teed, and copies the lines that a filter selects. The first spawn does not need it:
tails start threads.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from holdfast.errors.notice import notice
from holdfast.files import open_append

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from holdfast.processes.logs import LogsDest
    from holdfast.processes.tail import TailLog

FILTERED_LOG_MODE = 0o666
"""Before the umask, as for the other logs."""


class TeedLogs:
    """The tails of a set. `prefixes` come before the lines of each rank."""

    def __init__(self, name: str, prefixes: dict[int, str] | None) -> None:
        self._name = name
        self._prefixes = prefixes
        self._tails: list[TailLog] = []
        self._copies: list[TextIO] = []

    def start(self, logs: LogsDest, filters: tuple[list[str] | None, list[str] | None]) -> None:
        """Follow the logs. `filters` are the texts to look for in lines of stdout and of stderr."""
        for paths, console, filtered_log, wanted in (
            (logs.tee_stdouts, sys.stdout, logs.filtered_stdout, filters[0]),
            (logs.tee_stderrs, sys.stderr, logs.filtered_stderr, filters[1]),
        ):
            files = {rank: path for rank, path in paths.items() if path != os.devnull}
            if files and console is not None:
                self._show(files, console)
            if files and wanted and filtered_log:
                self._copy(files, filtered_log, wanted)

    def stop(self, patience_s: float) -> None:
        """Show the rest, for at most this long in all."""
        deadline = time.monotonic() + patience_s
        for tail in self._tails:
            tail.stop(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        for copy in self._copies:
            with suppress(OSError):  # a full disk; the workers' own logs are not affected
                copy.close()

    def _show(self, files: dict[int, str], stream: TextIO, wanted: Callable[[str], bool] | None = None) -> None:
        from holdfast.processes.tail import TailLog

        tail = TailLog(self._name, files, stream, self._prefixes, log_line_filter=wanted)
        self._tails.append(tail.start())

    def _copy(self, files: dict[int, str], path: str, texts: Sequence[str]) -> None:
        try:
            fd = open_append(path, FILTERED_LOG_MODE)
        except OSError as error:  # the workers run by now; one may have put a pipe there
            notice(f"{self._name}: cannot open {path!r}: {error.strerror}")
            return
        copy = open(fd, "w", encoding="utf-8")  # noqa: SIM115 - closed when the set has ended
        self._copies.append(copy)
        self._show(files, copy, lambda line: any(text in line for text in texts))
