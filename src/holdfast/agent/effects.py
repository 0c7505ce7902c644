"""Carries out what the agent's core decides: a table from each effect to its handler.

A handler gets the agent and the effect. It returns the event that answers the effect, if it has an answer.
"""
# ruff: noqa: SLF001 - the agent's hooks have torch's names, which begin with an underscore

from __future__ import annotations

from holdfast.agent.core_model import (
    AnnounceLeave,
    Asked,
    AskToStop,
    BarrierLeft,
    DeadlinePassed,
    Finish,
    LookBeforeStop,
    Outcome,
    PauseUntil,
    Record,
    RecordFailures,
    RecordVerdict,
    RecordWorkers,
    Report,
    RestartSet,
    Say,
    StartSet,
    StopSet,
    WaitForOthers,
)
from holdfast.agent.state import WorkerState
from holdfast.agent.wait import pause_until
from holdfast.logger import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.agent.core_model import Effect, Event
    from holdfast.agent.simple import SimpleElasticAgent as Agent

log = get_logger("holdfast.agent.simple")  # users know these lines, and may filter them, by this name


def carry_out(agent: Agent, effects: Iterable[Effect]) -> Event | None:
    """Carry out effects in order, and return the answer to the last one, if it has one."""
    answer = None
    for effect in effects:
        answer = HANDLERS[type(effect)](agent, effect)
    return answer


# The workers


def _start(agent: Agent, _effect: StartSet) -> None:
    agent._initialize_workers(agent._worker_group)


def _restart(agent: Agent, _effect: RestartSet) -> None:
    agent._restart_workers(agent._worker_group)


def _stop(agent: Agent, _effect: StopSet) -> None:
    agent._stop_workers(agent._worker_group)


def _ask_to_stop(agent: Agent, effect: AskToStop) -> Event:
    until = agent._ask_to_stop(agent._worker_group, effect.reason)
    return DeadlinePassed() if until is None else Asked(until)


def _look_before_stop(agent: Agent, effect: LookBeforeStop) -> None:
    agent._look_before_stop(effect.reason)


def _pause(_agent: Agent, effect: PauseUntil) -> Event:
    pause_until(effect.at)
    return DeadlinePassed()


# The other nodes


def _wait_for_others(agent: Agent, _effect: WaitForOthers) -> Event:
    if agent._exit_barrier() is not False:
        return BarrierLeft()
    over = agent._worker_group.spec.rdzv_handler.round_over()
    return BarrierLeft("the other nodes stopped" if over is None else over.reason)


def _announce_leave(agent: Agent, effect: AnnounceLeave) -> None:
    agent._worker_group.spec.rdzv_handler.announce_leave(effect.reason)


def _report(agent: Agent, _effect: Report) -> None:
    agent._report(agent._result.failures)


# People, and the caller of `run`


def _say(_agent: Agent, effect: Say) -> None:
    (log.info if effect.is_info else log.warning)("%s", effect.text)


def _finish(agent: Agent, effect: Finish) -> None:
    if effect.outcome is Outcome.FAILED:
        agent._result.state, agent._result.reason = WorkerState.FAILED, effect.reason


# The run's events


def _record(agent: Agent, effect: Record) -> None:
    agent._run_events.attempt_ended(effect.outcome, effect.reason)


def _record_failures(agent: Agent, _effect: RecordFailures) -> None:
    agent._run_events.failed(agent._result.failures)


def _record_workers(agent: Agent, effect: RecordWorkers) -> None:
    agent._record_worker_events(agent._result, effect.restarts)


def _record_verdict(agent: Agent, effect: RecordVerdict) -> None:
    from holdfast.agent.verdicts import cause_of

    failures = agent._result.failures
    rank, cause = cause_of(failures, agent._worker_group.workers[0])
    victims = max(len(failures) - 1, 0)
    agent._run_events.verdict(rank, cause, victims, restarts=effect.restarts, reason=effect.reason)


HANDLERS: dict[type, Callable[..., Event | None]] = {
    StartSet: _start,
    RestartSet: _restart,
    StopSet: _stop,
    AskToStop: _ask_to_stop,
    LookBeforeStop: _look_before_stop,
    PauseUntil: _pause,
    WaitForOthers: _wait_for_others,
    AnnounceLeave: _announce_leave,
    Report: _report,
    Say: _say,
    Finish: _finish,
    Record: _record,
    RecordFailures: _record_failures,
    RecordWorkers: _record_workers,
    RecordVerdict: _record_verdict,
}
"""The handler of every effect. A missing one is a bug."""
