"""An agent's decisions, without input or output: events go in, effects come out.

```
             StartSet              one failed
  MEETING ───────────► RUNNING ──────────────► FAILING
     ▲                  │  │                    │ │ │ all gone
     │ RestartSet       │  │    asked to end    │ │ ▼
     ├─── DRAINING ◄────┼──┴────────────────────┘ │ judged: RestartSet, PauseUntil or Finish
     ├─── PAUSED        │     all succeeded       │
     └─── WAITING ◄─────┴─────────────────────────┘
             │ all nodes are done
             ▼
           ENDED
```

Jobs of one node and of many follow the same path. The only difference is who judges a failed attempt. A single node
judges here. Several nodes report the failure, meet again, and get the verdict from the rendezvous: the next generation,
or the end.

The shell (`simple`) turns what it observes into events, carries out effects in order, and publishes the state.
"""

from __future__ import annotations

from holdfast.agent.core_model import (
    AgentState,
    AnnounceLeave,
    Asked,
    AskToStop,
    BarrierLeft,
    DeadlinePassed,
    Finish,
    HangFound,
    JobFailed,
    LookBeforeStop,
    Met,
    NotNeeded,
    Outcome,
    PauseUntil,
    Phase,
    Record,
    RecordFailures,
    RecordVerdict,
    RecordWorkers,
    Report,
    RestartSet,
    RoundOver,
    Say,
    SetFailed,
    SetFenced,
    SetSucceeded,
    Signalled,
    Started,
    Stopped,
    StopSet,
    WaitForOthers,
    WorkerExited,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.agent.core_model import Effect, Event, Next

FENCED = "the workers were killed: this node could not renew its lease in time"
STUCK = "a worker is stuck in the kernel, so all workers were stopped"

ALIVE = (Phase.RUNNING, Phase.FAILING, Phase.DRAINING)
"""The phases in which workers of this node may be alive."""


def step(state: AgentState, event: Event, now: float) -> Next:
    """The state after `event`, and the effects to carry out, in order."""
    rule, _ = RULES.get((state.phase, type(event)), (None, ()))
    if rule is None:
        raise AssertionError(f"an agent that is {state.phase} cannot hear of {type(event).__name__}")
    return rule(state, event, now)


def ended(state: AgentState, outcome: Outcome, reason: str = "") -> AgentState:
    """The state after an end without an event. An outcome that is set already stays."""
    return state if state.outcome else state.replace(phase=Phase.ENDED, outcome=outcome, reason=reason, until=None)


# One rule for each event in each phase


def _met(state: AgentState, event: Met, _now: float) -> Next:
    return (state if event.restarts is None else state.replace(spent=event.restarts, forgiven=0)), ()


def _started(state: AgentState, _event: Started, _now: float) -> Next:
    return state.replace(phase=Phase.RUNNING, is_recorded=False), ()


def _stopped(state: AgentState, _event: Stopped, _now: float) -> Next:
    return state.replace(phase=Phase.MEETING, until=None), ()


def _worker_exited(state: AgentState, _event: WorkerExited, _now: float) -> Next:
    """Report at once: other nodes need not wait until the rest of this node's workers have stopped."""
    return state.replace(phase=Phase.FAILING), ((Report(),) if state.is_shared else ())


def _set_succeeded(state: AgentState, _event: SetSucceeded, _now: float) -> Next:
    return state.replace(phase=Phase.WAITING), (Record("succeeded"), WaitForOthers())


def _set_failed(state: AgentState, event: SetFailed | HangFound, now: float) -> Next:
    is_stuck = isinstance(event, SetFailed) and event.is_stuck
    told: tuple[Effect, ...] = (RecordFailures(), Record("failed", event.text))
    if is_stuck:
        told = (*told, LookBeforeStop(STUCK))
    state = state.replace(phase=Phase.FAILING)
    if state.is_shared and not is_stuck:
        state = state.replace(is_recorded=True)
        return state, (*told, Report(), RecordWorkers(state.restarts), Say(event.text), RestartSet())
    state, effects = _judge(state, event, now, is_stuck=is_stuck)
    return state, (*told, *effects)


def _judge(state: AgentState, event: SetFailed | HangFound, now: float, *, is_stuck: bool) -> Next:
    """Judge a failed attempt of a node that decides for itself."""
    from holdfast.rendezvous.restarts import Past, rule

    past = state.past or Past()
    ruling = rule(past, event.fault, state.limits)
    effects: tuple[Effect, ...] = ()
    if ruling.restarts and past.spent > 0 and ruling.past.spent == 1:
        again = f"the workers ran for {round(event.fault.ran_s)} s: the restart count starts at 0 again"
        effects = (Say(again, is_info=True),)
        state = state.replace(forgiven=state.forgiven + state.spent, spent=0)
    restarts = ruling.restarts and not is_stuck
    effects = (*effects, RecordVerdict(restarts, ruling.reason))
    if not restarts:
        reason = ruling.reason if state.max_restarts else ""
        return _end(state, Outcome.FAILED, reason, (*effects, StopSet()))
    said = Say(f"{event.text}; restart {state.spent + 1} of {state.max_restarts}")
    effects = (*effects, RecordWorkers(state.restarts), said)
    state = state.replace(past=ruling.past, spent=state.spent + 1, is_recorded=True)
    if not ruling.pause_s:
        return state, (*effects, RestartSet())
    pause = Say(f"waiting {ruling.pause_s:g} s before the next attempt, after repeated failures")
    until = now + ruling.pause_s  # the pause runs while the last processes end
    return state.replace(phase=Phase.PAUSED, until=until), (*effects, pause, StopSet(), PauseUntil(until))


def _set_fenced(state: AgentState, _event: SetFenced, _now: float) -> Next:
    return state, (Say(FENCED), Record("stopped", FENCED), RestartSet())


def _round_over(state: AgentState, event: RoundOver, _now: float) -> Next:
    said = Say(f"stopping the workers: {event.reason}")
    if event.may_finish:
        return state.replace(phase=Phase.DRAINING, reason=event.reason), (said, AskToStop(event.reason))
    return state, (said, LookBeforeStop(event.reason), Record("stopped", event.reason), RestartSet())


def _stays(state: AgentState, _event: Event, _now: float) -> Next:
    return state, ()


def _asked(state: AgentState, event: Asked, _now: float) -> Next:
    return state.replace(until=event.until), ()


def _drained(state: AgentState, event: Event, _now: float) -> Next:
    """The workers that were asked to end did so, or the deadline passed. Their failures cost no restart."""
    effects: tuple[Effect, ...] = ()
    if isinstance(event, SetFailed):
        said = Say(f"while the workers were finishing, {event.text}")
        effects = (RecordFailures(), said, RecordWorkers(state.restarts))
        state = state.replace(is_recorded=True)
    if state.leaving:
        return _end(state, Outcome.INTERRUPTED, state.leaving, effects)
    return state.replace(reason=""), (*effects, Record("stopped", state.reason), RestartSet())


def _pause_is_over(state: AgentState, _event: DeadlinePassed, _now: float) -> Next:
    return state, (RestartSet(),)


def _barrier_left(state: AgentState, event: BarrierLeft, _now: float) -> Next:
    if not event.reason:
        return _end(state, Outcome.SUCCEEDED)
    why = f"the workers of this node succeeded, but the job is not done: {event.reason}"
    return state, (Say(why), RestartSet())


def _job_failed(state: AgentState, event: JobFailed, _now: float) -> Next:
    return _end(state, Outcome.FAILED, event.reason if state.max_restarts else "")


def _not_needed(state: AgentState, event: NotNeeded, _now: float) -> Next:
    reason = f"this node was not needed: {event.reason}"
    return state.replace(phase=Phase.ENDED, outcome=Outcome.SUCCEEDED, reason=reason, is_recorded=True), (
        Say(reason, is_info=True),
        Finish(Outcome.SUCCEEDED, reason),
    )


def _signalled(state: AgentState, event: Signalled, _now: float) -> Next:
    """Ask running workers to end by themselves. On a second signal, end without waiting."""
    is_running = state.phase in ALIVE
    said = Say(f"{event.text}{'; passing it on to the workers' if is_running else ''}")
    if not is_running or state.leaving:
        return _end(state, Outcome.INTERRUPTED, event.text, (said,))
    state = state.replace(phase=Phase.DRAINING, leaving=event.text, until=None)
    return state, (said, AnnounceLeave(event.name), AskToStop(f"the agent got {event.name}"))


def _end(state: AgentState, outcome: Outcome, reason: str = "", effects: tuple[Effect, ...] = ()) -> Next:
    if not state.is_recorded and outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        effects = (*effects, RecordWorkers(state.restarts))
    state = state.replace(phase=Phase.ENDED, outcome=outcome, reason=reason, is_recorded=True, until=None)
    return state, (*effects, Finish(outcome, reason))


_P = Phase
_JUDGED = (_P.FAILING, _P.PAUSED, _P.ENDED)
RULES: dict[tuple[Phase, type], tuple[Callable[..., Next], tuple[Phase, ...]]] = {
    (_P.MEETING, Met): (_met, (_P.MEETING,)),
    (_P.MEETING, Started): (_started, (_P.RUNNING,)),
    (_P.MEETING, JobFailed): (_job_failed, (_P.ENDED,)),
    (_P.MEETING, NotNeeded): (_not_needed, (_P.ENDED,)),
    (_P.MEETING, Signalled): (_signalled, (_P.ENDED,)),
    (_P.RUNNING, WorkerExited): (_worker_exited, (_P.FAILING,)),
    (_P.RUNNING, SetSucceeded): (_set_succeeded, (_P.WAITING,)),
    (_P.RUNNING, SetFailed): (_set_failed, _JUDGED),
    (_P.RUNNING, HangFound): (_set_failed, _JUDGED),
    (_P.RUNNING, SetFenced): (_set_fenced, (_P.RUNNING,)),
    (_P.RUNNING, RoundOver): (_round_over, (_P.RUNNING, _P.DRAINING)),
    (_P.RUNNING, Stopped): (_stopped, (_P.MEETING,)),
    (_P.RUNNING, Signalled): (_signalled, (_P.DRAINING,)),
    (_P.FAILING, SetSucceeded): (_set_succeeded, (_P.WAITING,)),
    (_P.FAILING, SetFailed): (_set_failed, _JUDGED),
    (_P.FAILING, SetFenced): (_set_fenced, (_P.FAILING,)),
    (_P.FAILING, RoundOver): (_stays, (_P.FAILING,)),
    (_P.FAILING, Stopped): (_stopped, (_P.MEETING,)),
    (_P.FAILING, Signalled): (_signalled, (_P.DRAINING,)),
    (_P.DRAINING, WorkerExited): (_stays, (_P.DRAINING,)),
    (_P.DRAINING, Asked): (_asked, (_P.DRAINING,)),
    (_P.DRAINING, RoundOver): (_stays, (_P.DRAINING,)),
    (_P.DRAINING, SetSucceeded): (_drained, (_P.DRAINING, _P.ENDED)),
    (_P.DRAINING, SetFailed): (_drained, (_P.DRAINING, _P.ENDED)),
    (_P.DRAINING, SetFenced): (_drained, (_P.DRAINING, _P.ENDED)),
    (_P.DRAINING, DeadlinePassed): (_drained, (_P.DRAINING, _P.ENDED)),
    (_P.DRAINING, Stopped): (_stopped, (_P.MEETING,)),
    (_P.DRAINING, Signalled): (_signalled, (_P.DRAINING, _P.ENDED)),
    (_P.PAUSED, DeadlinePassed): (_pause_is_over, (_P.PAUSED,)),
    (_P.PAUSED, Stopped): (_stopped, (_P.MEETING,)),
    (_P.PAUSED, Signalled): (_signalled, (_P.ENDED,)),
    (_P.WAITING, BarrierLeft): (_barrier_left, (_P.WAITING, _P.ENDED)),
    (_P.WAITING, JobFailed): (_job_failed, (_P.ENDED,)),
    (_P.WAITING, NotNeeded): (_not_needed, (_P.ENDED,)),
    (_P.WAITING, Stopped): (_stopped, (_P.MEETING,)),
    (_P.WAITING, Signalled): (_signalled, (_P.ENDED,)),
}
"""The rule for each event in each phase, and the phases that it can lead to. A missing pair is a bug."""
