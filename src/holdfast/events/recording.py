"""Record an event without an `EventLog`."""

from __future__ import annotations

import os
import sys

from holdfast.events.destinations import discard, event_handler
from holdfast.events.records import NodeState, RdzvEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.events.records import Event

RENDEZVOUS = "dynamic_rendezvous"
"""The destination of rendezvous events: discarded unless a program has set a handler."""


def record(event: Event, destination: str = "null") -> None:
    """Pass `event` to the handler named `destination`; see `event_handler`."""
    event_handler(destination)(event)


def record_rdzv_event(event: RdzvEvent) -> None:
    """Pass `event` to the handler of rendezvous events."""
    event_handler(RENDEZVOUS)(event)


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Record an event of a rendezvous. Gathers nothing unless a handler is set.

    The default `name` is the caller's file and function, "c10d.py:join". A failure includes the traceback of the
    exception being handled, if there is one.
    """
    if event_handler(RENDEZVOUS) is discard:
        return
    caller = sys._getframe(1).f_code  # noqa: SLF001 - as inspect does, without its import
    record_rdzv_event(
        RdzvEvent(
            name=name or f"{os.path.basename(caller.co_filename)}:{caller.co_name}",
            run_id=run_id,
            message=message,
            hostname=hostname or os.uname().nodename,
            pid=os.getpid() if pid is None else pid,
            node_state=node_state,
            master_endpoint=master_endpoint,
            rank=rank,
            local_id=local_id,
            error_trace=_current_traceback() if node_state == NodeState.FAILED else "",
        )
    )


def _current_traceback() -> str:
    if sys.exception() is None:
        return ""
    import traceback

    return traceback.format_exc()
