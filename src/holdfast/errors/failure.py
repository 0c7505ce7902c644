"""The failure of one process, as the process that watched it knows it."""

from __future__ import annotations

import os
import signal
import time

from holdfast.errors.error_file import read_error_file
from holdfast.errors.tree import Category

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NOT_AVAILABLE = "<N/A>"

SHELL_SIGNAL_BASE = 128
"""A shell whose command was ended by signal n exits with this plus n."""


class ProcessFailure:  # noqa: PLW1641 - not hashable, since it can change
    """A process that failed, with what it left behind in `error_file`.

    The file is read once, here. One that is missing, broken or nonsense raises nothing: `message` then says
    what is known.

    Attributes:
        local_rank: its rank among the processes of this machine.
        pid: its process id.
        exitcode: its exit code; -n if signal n ended it.
        error_file: where its error file is; "<N/A>" if there is none.
        error_file_data: the object in that file.
        message: the traceback, or whatever else is known of the reason.
        timestamp: when it failed, in Unix seconds with a fraction; without an error file, when that was seen.
        host: the name of its machine.
        category: whose failure it is; the user's until somebody knows better.
    """

    __slots__ = (  # noqa: RUF023 - in the order in which they are shown
        "local_rank",
        "pid",
        "exitcode",
        "error_file",
        "error_file_data",
        "message",
        "timestamp",
        "host",
        "category",
    )

    def __init__(self, local_rank: int, pid: int, exitcode: int, error_file: str) -> None:
        self.local_rank = local_rank
        self.pid = pid
        self.exitcode = exitcode
        self.category = Category.USER
        # Not the fully qualified name: to find that may wait for a DNS server, and hosts fail in groups.
        self.host = os.uname().nodename

        now = time.time()
        report = read_error_file(error_file, now)
        if report is not None:
            self.error_file = error_file
            self.error_file_data = report.data
            self.message = report.message
            self.timestamp = report.timestamp
        else:
            self.error_file = NOT_AVAILABLE
            self.error_file_data = _data_without_file(exitcode)
            self.message = _message_without_file(exitcode, pid)
            self.timestamp = now

    def has_error_file(self) -> bool:
        return self.error_file != NOT_AVAILABLE

    def signal_name(self) -> str:
        """The name of the signal that ended the process; "<N/A>" if none did, or if it has no name."""
        return _signal_name(-self.exitcode)

    def timestamp_isoformat(self) -> str:
        """The local time of the failure with milliseconds: 2026-01-31_23:59:59.123."""
        seconds, milliseconds = divmod(round(self.timestamp * 1000), 1000)
        return f"{time.strftime('%Y-%m-%d_%H:%M:%S', time.localtime(seconds))}.{milliseconds:03}"

    def _fields(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ProcessFailure.__slots__}

    def __repr__(self) -> str:
        return f"ProcessFailure({', '.join(f'{name}={value!r}' for name, value in self._fields().items())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessFailure):
            return NotImplemented
        return self._fields() == other._fields()


def in_order(failures: Mapping[int, ProcessFailure]) -> list[tuple[int, ProcessFailure]]:
    """The failures by rank, sorted: the first to happen first, and of equally early ones the lower rank."""
    return sorted(failures.items(), key=lambda item: (item[1].timestamp, item[0]))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return NOT_AVAILABLE


def _data_without_file(exitcode: int) -> dict[str, Any]:
    """What readers of torch's failures expect to find, a fresh object for each."""
    if exitcode < 0:
        return {"message": "<NONE>"}
    traits = {"category": "system_terminated_error", "retryability": "False"}
    return {"message": "<NONE>", "errorTraits": traits}


def _message_without_file(exitcode: int, pid: int) -> str:
    if exitcode < 0:
        return f"Signal {-exitcode} ({_signal_name(-exitcode)}) received by PID {pid}"
    name = _signal_name(exitcode - SHELL_SIGNAL_BASE)
    hint = "" if name == NOT_AVAILABLE else f" (as a shell reports {name})"
    return (
        f"PID {pid} exited with code {exitcode}{hint} and recorded no Python exception.\n"
        "It left by sys.exit or os._exit, is not a Python program, or does not use holdfast.errors.record. "
        "Its stderr may tell more."
    )
