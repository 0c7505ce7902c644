"""From a seed to a plan of faults: pure. What is possible is decided against a model of who is there."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from chaos.kinds import (
    ADD_NODE,
    FILL_DISK,
    FLAP_LINK,
    KILL_ETCD,
    KINDS,
    MAY_COINCIDE,
    MOMENTS,
    NEVER_ALONE,
    PAUSE_AGENT,
    SHIFT_CLOCK,
    SLOW_LINK,
    TAKES_A_NODE,
    After,
)

if TYPE_CHECKING:
    from collections.abc import Collection

NODES = 4
MIN_NODES = 2
"""How many the job needs. No fault leaves fewer, or it would rightly wait for ever."""

WORKERS_MAX = 2
"""Workers of one node; each node has its own number."""

PAIR_SHARE = 0.25
"""How many of the steps have two faults at once."""

WARM_SHARE = 0.9
"""How many of the agents start their workers warm. The others take seconds of a core for every start."""

STAYS_MAX_STEPS = 4
"""How many steps a fault that stays lasts at most."""

MOMENT_S = (0.1, 0.8)
"""How long a moment is: a link or an agent that is away for it has renewed its lease before that ended."""

CLOCK_MAX_S = 86_400
SERVER = 0
"""The node that serves the embedded store. The job ends with it, so it is spared what would end it."""


class Fault(NamedTuple):
    """One fault. Which of the other fields mean something depends on the kind."""

    kind: str
    node: int = -1
    local_rank: int = 0
    seconds: float = 0.0
    amount: int = 0


class Step(NamedTuple):
    """What happens at once, after what has stayed long enough is undone."""

    undo: tuple[Fault, ...]
    faults: tuple[Fault, ...]


class Plan(NamedTuple):
    """A whole storm: how many workers each node has, how far its clock is off at first, whether its first agent starts
    them warm, and what happens.
    """

    workers: tuple[int, ...]
    clocks_s: tuple[int, ...]
    warm: tuple[bool, ...]
    steps: tuple[Step, ...]


class Model:
    """Who is there, and what has been done to them."""

    def __init__(self, chance: random.Random, backend: str, possible: Collection[str]) -> None:
        self.running = set(range(NODES))
        self.staying: dict[Fault, int] = {}
        self._chance = chance
        self._backend = backend
        self._possible = possible
        self.workers = tuple(chance.randint(1, WORKERS_MAX) for _ in range(NODES))

    def choose(self, taken: Collection[Fault] = ()) -> Fault | None:
        """A fault that can happen now, together with those `taken`; None if there is none."""
        found = [fault for kind in sorted(self._possible) if (fault := self._fault(kind, taken)) is not None]
        weights = [self._weight(fault.kind) for fault in found]
        return self._chance.choices(found, weights)[0] if found else None

    def happen(self, fault: Fault) -> None:
        kind = KINDS[fault.kind]
        if kind.after is After.IDLE:
            self.running.discard(fault.node)
        elif kind.after is After.STAYS:
            self.staying[fault] = self._chance.randint(1, STAYS_MAX_STEPS)
        elif fault.kind == ADD_NODE:
            self.running.add(fault.node)

    def undo(self) -> tuple[Fault, ...]:
        """Let a step pass: what is undone before it."""
        over = tuple(fault for fault, left in self.staying.items() if left == 0)
        self.staying = {fault: left - 1 for fault, left in self.staying.items() if left > 0}
        return over

    def _weight(self, kind: str) -> int:
        return 4 * (NODES - len(self.running)) if kind == ADD_NODE else KINDS[kind].weight

    def _fault(self, kind: str, taken: Collection[Fault]) -> Fault | None:
        if taken and (kind not in MAY_COINCIDE or any(fault.kind == kind == ADD_NODE for fault in taken)):
            return None
        if not taken and kind in NEVER_ALONE:
            return None
        if kind == KILL_ETCD:
            return None if any(fault.kind == KILL_ETCD for fault in self.staying) else Fault(kind)
        nodes = set(range(NODES)) - self.running if kind == ADD_NODE else set(self.running)
        nodes -= {fault.node for fault in taken}
        nodes -= {fault.node for fault in self.staying if fault.kind == kind}
        if kind in TAKES_A_NODE:
            if len(self.running) - sum(fault.kind in TAKES_A_NODE for fault in taken) <= MIN_NODES:
                return None
            if self._backend != "etcd":
                nodes.discard(SERVER)
        # A link that is both cut for a moment and slow, or cut where it serves all, may take longer to work again than
        # a lease of the embedded store holds.
        if kind in (FLAP_LINK, PAUSE_AGENT):
            nodes -= {fault.node for fault in self.staying if fault.kind == SLOW_LINK}
        if kind == ADD_NODE:  # where no file can be made any more, an agent is right to say so and to end
            nodes -= {fault.node for fault in self.staying if fault.kind == FILL_DISK and fault.amount}
        if not nodes:
            return None
        node = self._chance.choice(sorted(nodes))
        return Fault(
            kind,
            node,
            self._chance.randrange(self.workers[node]),
            round(self._chance.uniform(*MOMENT_S), 2) if kind in MOMENTS else 0.0,
            self._amount(kind),
        )

    def _amount(self, kind: str) -> int:
        if kind == SHIFT_CLOCK:
            return self._chance.randint(-CLOCK_MAX_S, CLOCK_MAX_S)
        if kind == SLOW_LINK:
            return self._chance.choice((20, 50, 100))  # milliseconds, or how many times slower
        if kind == ADD_NODE:
            return int(self._chance.random() < WARM_SHARE)
        return self._chance.randrange(2) if kind == FILL_DISK else 0  # the space, or the number of files


def plan(seed: int, faults: int, backend: str, possible: Collection[str]) -> Plan:
    """So many faults, of the `possible` kinds. The same seed and the same arguments give the same plan."""
    chance = random.Random(seed)
    usable = [kind for kind in possible if backend == "etcd" or not KINDS[kind].needs_etcd]
    model = Model(chance, backend, usable)
    clocks = tuple(chance.randint(-CLOCK_MAX_S, CLOCK_MAX_S) if SHIFT_CLOCK in usable else 0 for _ in range(NODES))
    warm = tuple(chance.random() < WARM_SHARE for _ in range(NODES))
    steps: list[Step] = []
    left = faults
    while left > 0:
        undone = model.undo()
        first = model.choose()
        if first is None:
            if not undone and not model.staying:
                raise ValueError(f"none of {', '.join(sorted(possible))} can happen to {NODES} nodes")
            steps.append(Step(undone, ()))
            continue
        chosen = [first]
        if left > 1 and first.kind in MAY_COINCIDE and chance.random() < PAIR_SHARE:
            second = model.choose(chosen)
            chosen = [first] if second is None else sorted([first, second], key=lambda it: it.kind not in NEVER_ALONE)
        for fault in chosen:
            model.happen(fault)
        steps.append(Step(undone, tuple(chosen)))
        left -= len(chosen)
    return Plan(model.workers, clocks, warm, tuple(steps))
