"""Crashes of workers whose program had ended well: no failures, but the user should know."""

from __future__ import annotations

from holdfast.logger import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.agent.run_events import RunEvents
    from holdfast.errors import ProcessFailure

log = get_logger(__name__)


def warn_of(crashes: Mapping[int, ProcessFailure], told: set[int], run_events: RunEvents) -> None:
    """Warn of crashes, by global rank, once for each process. `told` has the pids of those that were told before."""
    for rank, crash in crashes.items():
        if crash.pid in told:
            continue
        told.add(crash.pid)
        text = (
            f"rank {rank} (pid {crash.pid}) crashed with {crash.signal_name()} while its interpreter "
            "shut down, after its program had succeeded: this counts as a success, unless you give --strict-exit. "
            "With torch, call torch.distributed.destroy_process_group() at the end of the program"
        )
        log.warning("%s", text)
        run_events.late_crash(rank, crash, text)
