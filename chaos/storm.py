"""From a seed to a plan of faults: pure. What is possible is decided against a model of who is there."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from chaos.kinds import (
    ADD_NODE,
    CUT_ETCD,
    DELETE_RECORD,
    FILL_DISK,
    FILL_ETCD,
    FLAP_LINK,
    FLAP_NODE,
    HANG_WORKER,
    HITS_ETCD,
    HITS_THE_STORE,
    KINDS,
    LOSE_HOST,
    MAY_COINCIDE,
    MOMENTS,
    NEVER_ALONE,
    PAUSE_AGENT,
    RESET_ALL,
    RESET_LINK,
    RETURN_HOST,
    SHIFT_CLOCK,
    SLOW_LINK,
    STOP_ETCD,
    STOP_KEEPER,
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

LASTS_S = {
    **dict.fromkeys(MOMENTS, MOMENT_S),
    STOP_KEEPER: (1.0, 8.0),
    STOP_ETCD: (2.0, 7.0),
    CUT_ETCD: (2.0, 7.0),
    RETURN_HOST: (0.3, 3.0),
    RESET_LINK: (0.2, 3.0),
    RESET_ALL: (0.2, 3.0),
}
"""How long a fault lasts that is over by itself, at least and at most. A lease is 3 s, or 5 s with etcd."""

CLOCK_MAX_S = 86_400
SERVER = 0
"""The node that serves the embedded store. It is spared what would end its agent, but for what is meant to."""


WAYS = {
    FILL_DISK: 2,  # the space, or the number of files
    HANG_WORKER: 3,  # asleep before a heartbeat, asleep after it, or stopped by a signal
    FILL_ETCD: 2,  # nothing else, or a worker killed while etcd takes no writes
    DELETE_RECORD: 2,  # the record of the generation, or of a node
    RETURN_HOST: 2,  # new connections are refused, or taken late
    RESET_LINK: 2,  # likewise
    RESET_ALL: 2,  # likewise
    FLAP_NODE: 2,  # agents are killed, or asked to go
}
"""In how many ways a fault comes: its amount counts from 0."""


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
        if not self._can_happen(kind, taken):
            return None
        if kind in HITS_THE_STORE:
            is_host = kind in (LOSE_HOST, RETURN_HOST)
            return Fault(kind, SERVER if is_host else -1, 0, self._seconds(kind), self._amount(kind))
        nodes = self._nodes(kind, taken)
        if not nodes:
            return None
        node = self._chance.choice(sorted(nodes))
        local_rank = self._chance.randrange(self.workers[node])
        return Fault(kind, node, local_rank, self._seconds(kind), self._amount(kind))

    def _can_happen(self, kind: str, taken: Collection[Fault]) -> bool:
        """Whether it can happen now, and together with what was `taken`."""
        if taken and (kind not in MAY_COINCIDE or any(fault.kind == kind == ADD_NODE for fault in taken)):
            return False
        if not taken and kind in NEVER_ALONE:
            return False
        if KINDS[kind].backend == "etcd" and any(fault.kind in HITS_ETCD for fault in self.staying):
            return False  # with another member away nothing could be written, or freed again
        if KINDS[kind].ends and any(fault.kind == FILL_DISK and fault.amount for fault in self.staying):
            return False  # the job may have to be started again, and no agent can where no file can be made
        gone = sum(fault.kind in TAKES_A_NODE for fault in taken)
        return kind not in TAKES_A_NODE or len(self.running) - gone > MIN_NODES

    def _nodes(self, kind: str, taken: Collection[Fault]) -> set[int]:
        """The nodes that it can happen to."""
        nodes = set(range(NODES)) - self.running if kind == ADD_NODE else set(self.running)
        nodes -= {fault.node for fault in taken}
        nodes -= {fault.node for fault in self.staying if fault.kind == kind}
        if self._backend != "etcd" and kind in (*TAKES_A_NODE, RESET_LINK):
            nodes.discard(SERVER)
        # A link that is both cut for a moment and slow, or cut where it serves all, may take longer to work again than
        # a lease of the embedded store holds.
        if kind in (FLAP_LINK, PAUSE_AGENT):
            nodes -= {fault.node for fault in self.staying if fault.kind == SLOW_LINK}
        if kind in (ADD_NODE, FLAP_NODE):  # where no file can be made any more, an agent is right to end with that
            nodes -= {fault.node for fault in self.staying if fault.kind == FILL_DISK and fault.amount}
        return nodes

    def _seconds(self, kind: str) -> float:
        return round(self._chance.uniform(*LASTS_S[kind]), 2) if kind in LASTS_S else 0.0

    def _amount(self, kind: str) -> int:
        if kind == SHIFT_CLOCK:
            return self._chance.randint(-CLOCK_MAX_S, CLOCK_MAX_S)
        if kind == SLOW_LINK:
            return self._chance.choice((20, 50, 100))  # milliseconds, or how many times slower
        if kind == ADD_NODE:
            return int(self._chance.random() < WARM_SHARE)
        return self._chance.randrange(WAYS[kind]) if kind in WAYS else 0


def plan(seed: int, faults: int, backend: str, possible: Collection[str]) -> Plan:
    """So many faults, of the `possible` kinds. The same seed and the same arguments give the same plan."""
    chance = random.Random(seed)
    usable = [kind for kind in possible if KINDS[kind].backend in ("", backend)]
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
