"""A failure on its way through the store: the one place where it becomes a record for other nodes, and back."""

from __future__ import annotations

from holdfast.errors import failure as own
from holdfast.errors.summary import gist
from holdfast.rendezvous.records import TEXT_MAX_CHARACTERS, Failure
from holdfast.rendezvous.restarts import hopeless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.errors import ProcessFailure


def to_record(failure: ProcessFailure, *, rank: int, node: str, others: int) -> Failure:
    """What other nodes are told about a worker of `node`. `others` is how many more workers of its node failed."""
    return Failure(
        node=node,
        host=failure.host,
        rank=rank,
        local_rank=failure.local_rank,
        pid=failure.pid,
        exit_code=failure.exitcode,
        message=gist(failure)[-TEXT_MAX_CHARACTERS:],
        timestamp=failure.record.timestamp,
        error_file=failure.record.error_file,
        traceback=failure.message[-TEXT_MAX_CHARACTERS:],
        kind=failure.kind,
        where=failure.where,
        exception=failure.exception,
        log_file=failure.log_file,
        max_rss_kib=failure.max_rss_kib,
        ran_s=failure.ran_s,
        others=others,
        hopeless=hopeless(failure),
    )


def from_record(told: Failure) -> own.Failure:
    """The failure that a node told, the same on every node. Its files may be on another machine."""
    message = told.traceback or told.message
    extra = {"py_callstack": message, "timestamp": str(int(told.timestamp))}
    return own.Failure(
        rank=told.rank,
        local_rank=told.local_rank,
        host=told.host,
        pid=told.pid,
        exit_code=told.exit_code,
        kind=told.kind,
        message=message,
        where=told.where,
        exception=told.exception,
        log_file=told.log_file,
        max_rss_kib=told.max_rss_kib,
        ran_s=told.ran_s,
        timestamp=told.timestamp,
        error_file=told.error_file,
        error_file_data={"message": {"message": told.message, "extraInfo": extra}},
    )
