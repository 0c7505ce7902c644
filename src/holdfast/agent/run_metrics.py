"""The metrics of a run: what every look at the workers finds, and how the run ended. The names are torch's."""

from __future__ import annotations

from holdfast.metrics import put_metric

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.agent.state import WorkerState


def put_look(role: str, state: WorkerState, remaining_restarts: int) -> None:
    """Record what a look at the workers found."""
    put_metric(f"workers.{role}.remaining_restarts", remaining_restarts)
    put_metric(f"workers.{role}.{state.name.lower()}", 1)


def put_outcome(role: str, *, is_failed: bool, has_restarted: bool) -> None:
    """Record whether a run succeeded, and whether it needed restarts."""
    put_metric(f"workers.{role}.run_total", 1)
    for outcome, is_so in (("success", not is_failed), ("failed", is_failed)):
        put_metric(f"workers.{role}.run_{outcome}_with_retries", int(is_so and has_restarted))
        put_metric(f"workers.{role}.run_{outcome}_no_retries", int(is_so and not has_restarted))


def put_flakiness(role: str, *, is_failed: bool, remaining_restarts: int, max_restarts: int) -> None:
    """Record 100 for a run that failed; else the share of its allowed attempts that failed, in per cent."""
    flakiness = 100.0 if is_failed else 100.0 - 100.0 * (remaining_restarts + 1) / (max_restarts + 1)
    put_metric(f"workers.{role}.flakiness", int(flakiness))
