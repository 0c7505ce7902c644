"""The failure of one process, as its watching process knows it."""

from __future__ import annotations

import os
import time

from holdfast.errors.diagnosis import NOT_AVAILABLE, Evidence, diagnose, signal_name
from holdfast.errors.error_file import read_error_file
from holdfast.errors.kind import FailureKind
from holdfast.errors.tree import Category

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class ProcessFailure:  # noqa: PLW1641 - not hashable, because it is mutable
    """A failed process, with the content of its `error_file`.

    The file is read once, here. A missing, broken or nonsensical file raises nothing: `message` then says what is
    known.

    Attributes:
        local_rank: its rank among the processes of this machine.
        pid: its process id.
        exitcode: its exit code; -n if signal n ended it.
        error_file: the path of its error file; "<N/A>" if there is none.
        error_file_data: the object in that file.
        message: the traceback, or whatever else is known of the reason.
        timestamp: when it failed, in Unix seconds with a fraction; without an error file, when the failure was noticed.
        host: the name of its machine.
        category: whose failure it is; the user's by default.
        kind: how it failed.
        where: the line of the user's code, "train.py:12 in step"; "" if unknown.
        exception: the name of the exception's class; "" if there was none.
        log_file: the file with all of its stderr; "" if that went to a console.
        stderr: the end of its stderr.
        max_rss_kib: its peak memory; 0 if unknown.
        ran_s: how long it had run; 0 if unknown.
        survivors: where the workers were that were stopped because of it, one line for each place.
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
        "kind",
        "where",
        "exception",
        "log_file",
        "stderr",
        "max_rss_kib",
        "ran_s",
        "survivors",
    )

    def __init__(
        self, local_rank: int, pid: int, exitcode: int, error_file: str, evidence: Evidence | None = None
    ) -> None:
        self.local_rank = local_rank
        self.pid = pid
        self.exitcode = exitcode
        self.category = Category.USER
        # Not the fully qualified name: that lookup may wait for a DNS server, and hosts fail in groups.
        self.host = os.uname().nodename

        known = Evidence() if evidence is None else evidence
        now = time.time()
        report = read_error_file(error_file, now)
        self.error_file = NOT_AVAILABLE if report is None else error_file
        if report is None and known.spare_file:
            report = read_error_file(known.spare_file, now)
        diagnosis = diagnose(exitcode, pid, report, known)
        self.error_file_data = _data_without_file(exitcode) if report is None else report.data
        self.timestamp = now if report is None else report.timestamp
        self.message = diagnosis.message
        self.kind: FailureKind = diagnosis.kind
        self.where = diagnosis.where
        self.exception = diagnosis.exception
        self.log_file = known.log_file
        self.stderr = known.stderr
        self.max_rss_kib = known.max_rss_kib
        self.ran_s = 0.0
        self.survivors: tuple[str, ...] = ()

    def has_error_file(self) -> bool:
        """Whether the process left an error file."""
        return self.error_file != NOT_AVAILABLE

    def signal_name(self) -> str:
        """The name of the signal that ended the process; "<N/A>" if there was no signal or it has no name."""
        return signal_name(-self.exitcode)

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
    """The failures with their ranks, the earliest first; on a tie the lower rank first.

    Failures that only lost a peer come last, whatever their time: they are victims of the others.
    """
    return sorted(failures.items(), key=lambda item: (_is_victim(item[1]), item[1].timestamp, item[0]))


def _is_victim(failure: ProcessFailure) -> bool:
    return failure.kind is FailureKind.COMMUNICATION


def _data_without_file(exitcode: int) -> dict[str, Any]:
    """The data that readers of torch's failures expect, as a fresh object."""
    if exitcode < 0:
        return {"message": "<NONE>"}
    traits = {"category": "system_terminated_error", "retryability": "False"}
    return {"message": "<NONE>", "errorTraits": traits}
