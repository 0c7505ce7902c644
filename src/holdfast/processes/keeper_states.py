"""The life of a set, as its keeper decides it: a table of phases by events. Pure; `keeper` acts.

    RUNNING ── stop ──► STOPPING ── the workers have ended ──► LEFTOVERS
       │                   │                                      │
       └───────────────────┴── fence, agent's death, deadline ────┴──► KILLING ── deadline ──► STUCK
       all processes have ended                                           │ all have ended      │
       ▼                                                                  ▼                     │
    SHOWING ── the console has all, or its patience is over ──► ENDED ◄── HURRYING ◄────────────┘

A pair of phase and event that is not in the table is a defect of the keeper.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Effects: TypeAlias = list[tuple[str, int]]
    """What the keeper has to do, in this order. The number is a signal's, or 0."""

    Rules: TypeAlias = Mapping[type, Callable[..., Effects]]

LEFTOVER_GRACE_S = 1.0
"""How long processes that outlive the workers have after the stop signal. Python's resource tracker, for one, ignores
SIGTERM and unlinks shared memory once its clients are gone."""

KILL_WAIT_S = 10.0
"""How long after SIGKILL the keeper reports processes that do not end (uninterruptible, or not ours to kill)."""

CONSOLE_PATIENCE_S = 5.0
"""How long a set that failed or was stopped waits for a console that accepts nothing. A set that ended well waits as
its workers would have: for a person with a pager, as long as it takes.
"""

KILLED_CONSOLE_PATIENCE_S = 1.0
"""... in all, if the set was killed or stops without grace: the user is in a hurry, or absent."""

RUNNING = "running"
"""Nobody has asked the set to end."""

STOPPING = "stopping"
"""The workers got the stop signal, and have until the deadline."""

LEFTOVERS = "leftovers"
"""The workers have ended after the stop. The processes that they left got the signal too, and have a short grace."""

KILLING = "killing"
"""All processes got SIGKILL."""

STUCK = "stuck"
"""Some have survived SIGKILL for too long, and were reported. The keeper stays with them."""

SHOWING = "showing"
"""No process is left. The console shows the workers' last lines."""

HURRYING = "hurrying"
"""The same after SIGKILL: there is one short deadline."""

ENDED = "ended"
"""The keeper has nothing left to do but to report it."""

HAVE_PROCESSES = (RUNNING, STOPPING, LEFTOVERS, KILLING, STUCK)
HEED_FENCE = (RUNNING, STOPPING, LEFTOVERS)

TELL_STOPPING = "tell stopping"
"""Report that later exits may be caused by us, except those of workers that already end."""

TELL_STOPPING_ALL = "tell stopping all"
"""... of all workers."""

TELL_FENCED = "tell fenced"
TELL_STUCK = "tell stuck"
SIGNAL_WORKERS = "signal workers"
"""Signal the workers with their groups."""

SIGNAL_CHILDREN = "signal children"
"""Signal the children that have not had a signal yet: those that were adopted since."""

KILL = "kill"
"""SIGKILL to the workers' groups and to all children."""


class Stop:
    """The agent asks for the end of the set: the signal to all, SIGKILL after the grace. `workers` still run."""

    __slots__ = ("grace_s", "signum", "workers")

    def __init__(self, signum: int, grace_s: float, workers: int) -> None:
        self.signum = signum
        self.grace_s = grace_s
        self.workers = workers


class WorkerExited:
    """A worker has ended."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class ChildrenChanged:
    """Children have ended, or were adopted; `workers` still run. Some process is left."""

    __slots__ = ("workers",)

    def __init__(self, workers: int) -> None:
        self.workers = workers


class AllGone:
    """The kernel says that no process is left. The console has accepted `shown_bytes` so far."""

    __slots__ = ("shown_bytes",)

    def __init__(self, shown_bytes: int = 0) -> None:
        self.shown_bytes = shown_bytes


class AgentDied:
    """The agent has died, or has released the set."""


class FencePassed:
    """The fence was not renewed in time. Others may start the same work from now on, so there is no grace."""


class DeadlinePassed:
    """`Life.deadline` has come. The console has accepted `shown_bytes` so far."""

    __slots__ = ("shown_bytes",)

    def __init__(self, shown_bytes: int = 0) -> None:
        self.shown_bytes = shown_bytes


class AllShown:
    """The console has accepted everything."""


class Life:
    """Where a set is, and until when it may stay there. All times are of the monotonic clock."""

    __slots__ = ("deadline", "ended_well", "patience_ends", "patience_s", "phase", "shown_bytes", "stop_signal")

    def __init__(self) -> None:
        self.phase = RUNNING
        self.deadline: float | None = None
        """When `DeadlinePassed` is due."""
        self.ended_well = True
        """Whether no worker has failed or was stopped so far."""
        self.stop_signal = 0
        self.patience_s = 0.0
        self.patience_ends = 0.0
        self.shown_bytes = 0

    def step(self, event: object, now: float) -> Effects:
        """Take in an event; returns what to do about it."""
        rule = RULES.get((self.phase, type(event)))
        assert rule is not None, f"{type(event).__name__} cannot happen while {self.phase}"
        return rule(self, event, now)

    def end_by(self, deadline: float) -> None:
        """The earlier of two deadlines holds."""
        self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)


def _nothing(_life: Life, _event: object, _now: float) -> Effects:
    return []


def _note_exit(life: Life, event: WorkerExited, _now: float) -> Effects:
    life.ended_well = life.ended_well and not event.code
    return []


# Stopping


def _stop(life: Life, event: Stop, now: float) -> Effects:
    life.ended_well = life.ended_well and not event.workers
    return [(TELL_STOPPING, 0), *_stop_again(life, event, now)]


def _stop_again(life: Life, event: Stop, now: float) -> Effects:
    life.phase = STOPPING
    life.stop_signal = event.signum
    life.end_by(now + event.grace_s)
    effects: Effects = [(SIGNAL_WORKERS, event.signum)] if event.workers else []
    return [*effects, *_stop_leftovers(life, ChildrenChanged(event.workers), now)]


def _stop_leftovers(life: Life, event: ChildrenChanged, now: float) -> Effects:
    """When the workers are gone, the keeper has adopted what they left: the same signal, and a short grace."""
    if event.workers:
        return []
    life.phase = LEFTOVERS
    life.end_by(now + LEFTOVER_GRACE_S)
    return [(SIGNAL_CHILDREN, life.stop_signal)]


# Killing


def _kill(life: Life, _event: object, now: float) -> Effects:
    life.phase = KILLING
    life.deadline = now + KILL_WAIT_S
    return [(KILL, signal.SIGKILL)]


def _fence_running(life: Life, event: FencePassed, now: float) -> Effects:
    return [(TELL_STOPPING_ALL, 0), *_fence(life, event, now)]


def _fence(life: Life, event: FencePassed, now: float) -> Effects:
    """Kill first: the agent's own guard of the fence ends when it is told, and this process may be stopped between."""
    return [*_kill(life, event, now), (TELL_FENCED, 0)]


def _kill_adopted(_life: Life, _event: ChildrenChanged, _now: float) -> Effects:
    return [(SIGNAL_CHILDREN, signal.SIGKILL)]


def _give_up_waiting(life: Life, _event: DeadlinePassed, _now: float) -> Effects:
    life.phase = STUCK
    life.deadline = None
    return [(TELL_STUCK, 0)]


# The console


def _show(life: Life, event: AllGone, now: float) -> Effects:
    life.shown_bytes = event.shown_bytes
    return _wait_for_console(life, SHOWING, float("inf") if life.ended_well else CONSOLE_PATIENCE_S, now)


def _hurry(life: Life, _event: AllGone, now: float) -> Effects:
    return _wait_for_console(life, HURRYING, KILLED_CONSOLE_PATIENCE_S, now)


def _wait_for_console(life: Life, phase: str, patience_s: float, now: float) -> Effects:
    life.phase = phase
    life.patience_s = patience_s
    life.patience_ends = life.deadline = now + patience_s
    return []


def _stop_showing(life: Life, event: Stop, now: float) -> Effects:
    """A second stop means: do not wait for the console either. For a set that failed, the first one does."""
    if life.stop_signal or not life.ended_well:
        life.end_by(now + max(min(event.grace_s, CONSOLE_PATIENCE_S), KILLED_CONSOLE_PATIENCE_S))
    life.stop_signal = event.signum
    return []


def _leave_console(life: Life, _event: AgentDied, now: float) -> Effects:
    life.end_by(now + KILLED_CONSOLE_PATIENCE_S)
    return []


def _judge_console(life: Life, event: DeadlinePassed, now: float) -> Effects:
    """Restart the timeout for the console when it has accepted lines, unless the agent set the deadline."""
    assert life.deadline is not None
    if life.deadline < life.patience_ends or event.shown_bytes == life.shown_bytes:
        return _end(life, event, now)
    life.shown_bytes = event.shown_bytes
    life.patience_ends = life.deadline = now + life.patience_s
    return []


def _end(life: Life, _event: object, _now: float) -> Effects:
    life.phase = ENDED
    life.deadline = None
    return []


def _rules(phase: str, rules: Rules) -> dict[tuple[str, type], Callable[..., Effects]]:
    return {(phase, event): rule for event, rule in rules.items()}


_WITH_GRACE: Rules = {
    WorkerExited: _note_exit,
    AgentDied: _kill,
    FencePassed: _fence,
    DeadlinePassed: _kill,
    AllGone: _show,
}
_WITHOUT_GRACE: Rules = {
    WorkerExited: _note_exit,
    ChildrenChanged: _kill_adopted,
    Stop: _nothing,
    AgentDied: _nothing,
    AllGone: _hurry,
}

RULES: dict[tuple[str, type], Callable[..., Effects]] = {
    **_rules(
        RUNNING,
        {
            WorkerExited: _note_exit,
            ChildrenChanged: _nothing,
            Stop: _stop,
            AgentDied: _kill,
            FencePassed: _fence_running,
            AllGone: _show,
        },
    ),
    **_rules(STOPPING, {**_WITH_GRACE, ChildrenChanged: _stop_leftovers, Stop: _stop_again}),
    **_rules(LEFTOVERS, {**_WITH_GRACE, ChildrenChanged: _stop_leftovers, Stop: _stop_again}),
    **_rules(KILLING, {**_WITHOUT_GRACE, DeadlinePassed: _give_up_waiting}),
    **_rules(STUCK, _WITHOUT_GRACE),
    **_rules(SHOWING, {Stop: _stop_showing, AgentDied: _leave_console, DeadlinePassed: _judge_console, AllShown: _end}),
    **_rules(HURRYING, {Stop: _nothing, AgentDied: _leave_console, DeadlinePassed: _end, AllShown: _end}),
}
"""What happens in each phase upon each event."""
