"""One record of a failed process, `Failure`; and `ProcessFailure`, the view of it that torch's users know."""

from __future__ import annotations

import os
import time

from holdfast.errors.diagnosis import NOT_AVAILABLE, Evidence, diagnose, signal_name
from holdfast.errors.error_file import read_error_file, thread_in
from holdfast.errors.kind import FailureKind
from holdfast.errors.tree import Category
from holdfast.record_types import Frozen, like_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar

NO_RANK = -1


class Failure(Frozen):
    """A failed process: what its agent found out when it ended, what other nodes are told, and what a report shows.

    `FACTS` are for everybody. The other fields stay in the agent's process.
    """

    FACTS: ClassVar[tuple[str, ...]] = (
        *("rank", "local_rank", "host", "pid", "exit_code", "kind", "message", "where", "exception"),
        *("log_file", "max_rss_kib", "ran_s", "timestamp"),
    )
    """The names of the fields that are recorded in a run's events, in their order there."""

    rank: int = NO_RANK
    local_rank: int = NO_RANK
    host: str = ""
    pid: int = 0
    exit_code: int | None = None
    """-n if signal n ended it; None if unknown."""
    kind: str = ""
    """A `FailureKind`; in a log, also one that only a newer version knows, or ""."""
    message: str = ""
    where: str = ""
    exception: str = ""
    log_file: str = ""
    max_rss_kib: int = 0
    ran_s: float = 0.0
    timestamp: float = 0.0
    error_file: str = ""
    error_file_data: Mapping[str, Any] | None = None
    category: Category = Category.USER
    stderr: str = ""
    survivors: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """The facts for everybody, by name."""
        return {name: getattr(self, name) for name in self.FACTS}

    def known_kind(self) -> FailureKind:
        """The kind; EXIT if this version does not know it."""
        try:
            return FailureKind(self.kind)
        except ValueError:
            return FailureKind.EXIT


def diagnosed(local_rank: int, pid: int, exit_code: int, error_file: str, evidence: Evidence) -> Failure:
    """Diagnose a process that failed on this machine. Reads its error file, and never raises.

    A missing, broken or nonsensical error file is no problem: `message` then says what is known.
    """
    now = time.time()
    report = read_error_file(error_file, now)
    own_file = "" if report is None else error_file
    if report is None and evidence.spare_file:
        report = read_error_file(evidence.spare_file, now)
    diagnosis = diagnose(exit_code, pid, report, evidence)
    # A thread may have failed long before the process did.
    is_own_time = report is not None and not (evidence.exited_at and thread_in(report.data))
    is_killed_with_keeper = report is None and evidence.killed_with_keeper
    return Failure(
        local_rank=local_rank,
        # Not the fully qualified name: that lookup may wait for a DNS server, and hosts fail in groups.
        host=os.uname().nodename,
        pid=pid,
        exit_code=exit_code,
        kind=diagnosis.kind,
        message=evidence.killed_with_keeper if is_killed_with_keeper else diagnosis.message,
        where=diagnosis.where,
        exception=diagnosis.exception,
        log_file=evidence.log_file,
        max_rss_kib=evidence.max_rss_kib,
        ran_s=evidence.ran_s,
        timestamp=report.timestamp if report is not None and is_own_time else evidence.exited_at or now,
        error_file=own_file,
        error_file_data=data_without_file(exit_code) if report is None else report.data,
        category=Category.INFRASTRUCTURE if is_killed_with_keeper else Category.USER,
        stderr=evidence.stderr,
    )


@like_dataclass
class ProcessFailure:  # noqa: PLW1641 - not hashable, because it is mutable
    """A failed process, with the content of its `error_file`: torch's shape of a `Failure`.

    The file is read once, here. A missing, broken or nonsensical file raises nothing: `message` then says what is
    known. To set an attribute replaces the `record` that this is a view of.

    Attributes:
        local_rank: its rank among the processes of this machine.
        pid: its process id.
        exitcode: its exit code; -n if signal n ended it.
        error_file: the path of its error file; "<N/A>" if there is none.
        error_file_data: the object in that file.
        message: the traceback, or whatever else is known of the reason.
        timestamp: when it failed, in whole Unix seconds, as its error file has it; without one, when the failure was
            noticed. `record.timestamp` has the fraction, which orders failures.
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

    if not TYPE_CHECKING:  # type checkers think that only names in it can be set
        __slots__ = ("record",)

    record: Failure

    DERIVED_FIELDS: ClassVar[tuple[str, ...]] = ("error_file_data", "message", "timestamp")
    """What `dataclasses` shows beside the arguments."""

    if TYPE_CHECKING:
        local_rank: int
        pid: int
        error_file_data: dict[str, Any]
        message: str
        host: str
        category: Category
        where: str
        exception: str
        log_file: str
        stderr: str
        max_rss_kib: int
        ran_s: float
        survivors: tuple[str, ...]

    def __init__(
        self, local_rank: int, pid: int, exitcode: int, error_file: str, *, evidence: Evidence | None = None
    ) -> None:
        self.record = diagnosed(local_rank, pid, exitcode, error_file, Evidence() if evidence is None else evidence)

    @classmethod
    def of(cls, record: Failure) -> ProcessFailure:
        """The view of `record`."""
        view = cls.__new__(cls)
        view.record = record
        return view

    @property
    def exitcode(self) -> int:
        return self.record.exit_code or 0

    @exitcode.setter
    def exitcode(self, code: int) -> None:
        self.record = self.record.replace(exit_code=code)

    @property
    def error_file(self) -> str:
        return self.record.error_file or NOT_AVAILABLE

    @error_file.setter
    def error_file(self, path: str) -> None:
        self.record = self.record.replace(error_file="" if path == NOT_AVAILABLE else path)

    @property
    def timestamp(self) -> int:
        return int(self.record.timestamp)

    @timestamp.setter
    def timestamp(self, seconds: float) -> None:
        self.record = self.record.replace(timestamp=seconds)

    @property
    def kind(self) -> FailureKind:
        return self.record.known_kind()

    @kind.setter
    def kind(self, kind: FailureKind) -> None:
        self.record = self.record.replace(kind=kind)

    if not TYPE_CHECKING:  # type checkers know the attributes from above

        def __getattr__(self, name: str) -> Any:
            if name in _OF_RECORD:
                return getattr(self.record, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: object) -> None:
            if name in _OF_RECORD:
                self.record = self.record.replace(**{name: value})
            else:
                object.__setattr__(self, name, value)

    def has_error_file(self) -> bool:
        """Whether the process left an error file."""
        return bool(self.record.error_file)

    def signal_name(self) -> str:
        """The name of the signal that ended the process; "<N/A>" if there was no signal or it has no name."""
        return signal_name(-self.exitcode)

    def timestamp_isoformat(self) -> str:
        """The local time of the failure with milliseconds: 2026-01-31_23:59:59.123."""
        seconds, milliseconds = divmod(round(self.record.timestamp * 1000), 1000)
        return f"{time.strftime('%Y-%m-%d_%H:%M:%S', time.localtime(seconds))}.{milliseconds:03}"

    def __repr__(self) -> str:
        return f"ProcessFailure({', '.join(f'{name}={getattr(self, name)!r}' for name in _SHOWN)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessFailure):
            return NotImplemented
        return self.record == other.record


_SHOWN = (
    *("local_rank", "pid", "exitcode", "error_file", "error_file_data", "message", "timestamp", "host", "category"),
    *("kind", "where", "exception", "log_file", "stderr", "max_rss_kib", "ran_s", "survivors"),
)
"""The attributes of a `ProcessFailure`, in the order in which they are shown."""

_OF_RECORD = frozenset(_SHOWN) - {"exitcode", "error_file", "kind", "timestamp"}
"""Those of them that have the same name and value in a `Failure`."""


def in_order(failures: Mapping[int, ProcessFailure]) -> list[tuple[int, ProcessFailure]]:
    """The failures with their ranks, the earliest first; on a tie the lower rank first.

    Failures that only lost a peer come last, whatever their time: they are victims of the others.
    """
    return sorted(failures.items(), key=lambda item: (_is_victim(item[1]), item[1].record.timestamp, item[0]))


def _is_victim(failure: ProcessFailure) -> bool:
    return failure.kind is FailureKind.COMMUNICATION


def data_without_file(exit_code: int) -> dict[str, Any]:
    """The data that readers of torch's failures expect of a process without an error file, as a fresh object."""
    if exit_code < 0:
        return {"message": "<NONE>"}
    traits = {"category": "system_terminated_error", "retryability": "False"}
    return {"message": "<NONE>", "errorTraits": traits}
