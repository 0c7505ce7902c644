"""Show a failure that another node reported."""

from __future__ import annotations

from holdfast.errors.failure import ProcessFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.records import Failure


def failure_elsewhere(told: Failure) -> ProcessFailure:
    """Convert a node's failure record to the form in which failures are shown, the same on every node.

    The error file may be on another machine.
    """
    failure = ProcessFailure(told.local_rank, told.pid, told.exit_code, "")
    failure.error_file = told.error_file or failure.error_file
    failure.host = told.host
    failure.timestamp = told.timestamp
    failure.message = told.traceback or told.message
    failure.kind = told.kind
    failure.where = told.where
    failure.exception = told.exception
    failure.log_file = told.log_file
    failure.max_rss_kib = told.max_rss_kib
    failure.ran_s = told.ran_s
    failure.error_file_data = {
        "message": {
            "message": told.message,
            "extraInfo": {"py_callstack": failure.message, "timestamp": str(int(told.timestamp))},
        }
    }
    return failure
