"""Whether what a node told of a generation's end is what was done to it: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.kinds import (
    ADD_NODE,
    FILL_ETCD,
    FLAP_NODE,
    HANG_WORKER,
    KILL_WORKER,
    KINDS,
    LEAVES,
    MOMENTS,
    Break,
)
from chaos.storm import NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.generations import Key
    from chaos.record import Entry

SIGKILL_CODE = -9

MOMENT_LEASE_SHARE = 0.5
"""A moment that took this share of a lease, because the machine was busy, may cost the node its place: workers are told
to stop at three quarters, and the last renewal may have been a while before.
"""

LOST_WORDS = (
    "could not renew its lease",
    "the store cannot be reached",
    "the other nodes continued without this node",
    "the job's store is gone",
    "keeper",
)
"""One of these is in what a node says of itself that was cut off, stopped, or lost its keeper."""

_FAILED = re.compile(r"rank (\d+) on (\S+) failed: ")
_NODE = re.compile(r"node\d+")


SLOW_NODES = "the machine"
"""What a stage names where the witness had to wait for its answers.

A machine that is too slow for its store to answer in time is too slow for a lease, whatever was done to it. Agents are
right to give up then, and come back; that is no failure, and costs no restart, which other laws see to.
"""


class Told(NamedTuple):
    """What one agent told of one generation that it was in. `ended` is its outcome and reason, if it told of an end."""

    node: str
    failures: tuple[dict[str, Any], ...]
    ended: tuple[str, str] | None


RUNS, ENDED, STUCK = "runs", "ended", "stuck"
"""How a stage ends: the world runs again, the job is over, or neither came."""


class Stage(NamedTuple):
    """What was done between two times at which the world was seen to run, and the generations of both.

    `recent` are faults of the stage before that may be felt late: those that may cost a node its place, or not.
    """

    name: str
    outcome: str
    since_s: float
    until_s: float
    faults: tuple[Entry, ...]
    recent: tuple[Entry, ...]
    returning: frozenset[str]
    before: Key
    after: Key
    is_slow: bool = False
    mute: frozenset[str] = frozenset()
    """The nodes whose disk was full, now or when the generation began, so that what they told may not have been kept:
    how it ended, or that they were in it.
    """

    @property
    def text(self) -> str:
        done = [f"{fault['kind']} {fault['node']}".rstrip() for fault in self.faults]
        done += [f"{fault['kind']} {fault['node']} just before".replace("  ", " ") for fault in self.recent]
        done += [f"the return of {node}" for node in sorted(self.returning)]
        return ", ".join([*done, *([SLOW_NODES] if self.is_slow else [])]) or "nothing"


class Nodes:
    """Some nodes, or all of them: a fault of no node is one of all."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def has(self, names: Iterable[str]) -> bool:
        return "" in self._names or set(names) <= self._names

    def __bool__(self) -> bool:
        return bool(self._names)


class Expected:
    """What may be told of a generation that ended in a stage.

    Attributes:
        failed: the faults that made a worker fail, by its process.
        lost, left, joined: the nodes that were, or may have been.
        away: those that were to be away for a moment only, and were for longer.
        is_slow: whether the machine was, so that any node may have been away.
        mute: the nodes that may have told more than was kept.
        ends: what agents may say of a job that ended, or might have, as a pattern.
    """

    def __init__(self, stage: Stage, lease_s: float) -> None:
        faults = (*stage.faults, *stage.recent)
        self.is_slow = stage.is_slow
        self.mute = stage.mute
        self.failed = failed_workers(faults)
        self.away = {
            fault["node"]
            for fault in faults
            if fault["kind"] in MOMENTS and fault["took_s"] > MOMENT_LEASE_SHARE * lease_s
        }
        self.lost = Nodes({*_hit_by(faults, Break.LOST), *self.away})
        self.left = Nodes(fault["node"] for fault in faults if fault["kind"] in (*LEAVES, FLAP_NODE))
        joined = {fault["node"] for fault in faults if fault["kind"] == ADD_NODE} | stage.returning | self.away
        self.joined = Nodes({*joined, *_hit_by(faults, Break.JOINED)})
        self.ends = "|".join(f"({KINDS[fault['kind']].ends})" for fault in faults if KINDS[fault["kind"]].ends)

    def most_generations(self, stage: Stage) -> int:
        """How many generations may end in the stage."""
        most = len(stage.returning) + 2 * len(self.away)  # lost, and let in again
        return most + sum(map(_most_generations, (*stage.faults, *stage.recent)))

    def what_is_wrong(self, told: Told, others: Sequence[Told]) -> str:
        """In what a node told; "" if nothing is. `others` are all that told of the generation."""
        for failure in told.failures:
            if not self._is_known(failure):
                return f"a worker's failure of its own: {brief(failure)}"
        if told.ended is None:
            return ""  # it was killed, or its disk was full
        outcome, reason = told.ended
        is_right = {
            "failed": bool(told.failures),
            # Workers that were asked to stop, and did before their agent had heard why.
            "succeeded": bool(self.joined or self.left or self.is_slow),
            "stopped": self._is_of_itself(told.node, reason)
            or self._is_of_a_worker(reason, others)
            or self._is_of_nodes(reason)
            or (bool(self.ends) and re.search(self.ends, reason) is not None),
        }
        return "" if is_right[outcome] else f"{outcome}: {reason}"

    def _is_known(self, failure: dict[str, Any]) -> bool:
        """The storm killed it or made it hang, or it is a victim of that."""
        return is_as_done(failure, self.failed.get(failure["pid"])) or failure["kind"] == "communication"

    def _is_of_itself(self, node: str, reason: str) -> bool:
        """What a node says of itself that could not be reached, that was stopped, or that was asked to go."""
        is_lost = self.lost.has([node]) or self.is_slow
        words = any(each in reason for each in LOST_WORDS)
        return (is_lost and words) or (self.left.has([node]) and "SIGTERM" in reason)

    def _is_of_a_worker(self, reason: str, others: Sequence[Told]) -> bool:
        """A worker that was killed, or one that lost its peer. The latter is told before anybody can know better; it
        must not be the verdict. How a worker of a mute node failed is not known, so there it is left to that law alone.
        """
        match = _FAILED.match(reason)
        if match is None:
            return False
        rank, host = int(match[1]), match[2]
        told = [failure for other in others if other.node == host for failure in other.failures]
        is_killed = any((fault["rank"], fault["node"]) == (rank, host) for fault in self.failed.values())
        is_victim = any(failure["rank"] == rank and failure["kind"] == "communication" for failure in told)
        return is_killed or is_victim or host in self.mute

    def _is_of_nodes(self, reason: str) -> bool:
        """Nodes that were lost, that came, that went: these, and no others."""
        named = set(_NODE.findall(reason))
        return bool(named) and (
            (reason.startswith("lost ") and (self.is_slow or self.lost.has(named)))
            or (reason.startswith("letting in ") and (self.is_slow or self.joined.has(named)))
            or (reason.endswith(" had to stop its workers") and (self.is_slow or self.lost.has(named)))
            or (reason.endswith(" leaves: SIGTERM") and self.left.has(named))
        )


def failed_workers(faults: Iterable[Entry]) -> dict[int, Entry]:
    """The faults that made a worker fail, by its process."""
    return {
        fault["pid"]: fault
        for fault in faults
        if fault["kind"] in (KILL_WORKER, HANG_WORKER, FILL_ETCD) and "pid" in fault
    }


def is_as_done(failure: dict[str, Any], fault: Entry | None) -> bool:
    """Whether a failure is told as what was done to this worker: where it was, and how it ended."""
    if fault is None or (failure["rank"], failure["host"]) != (fault["rank"], fault["node"]):
        return False
    if fault["kind"] == HANG_WORKER:
        return bool(failure["kind"] == "hang")
    return (failure["kind"], failure["exit_code"]) == ("killed", SIGKILL_CODE)


def _hit_by(faults: Iterable[Entry], what: Break) -> set[str]:
    """The nodes to which this must or may have happened. What may end the job may cost any of them its place."""
    return {
        "" if KINDS[fault["kind"]].ends else fault["node"]
        for fault in faults
        if KINDS[fault["kind"]].breaks is what or what in KINDS[fault["kind"]].may
    }


def _most_generations(fault: Entry) -> int:
    kind = KINDS[fault["kind"]]
    if fault["kind"] == FLAP_NODE:
        return 2 * len(fault["flapped"]) + 1
    most = int(kind.breaks is not Break.NOTHING)
    if Break.LOST in kind.may:  # lost, and let in again: one node, or each of them
        most += 2 if fault["node"] and not kind.ends else 2 * NODES
    return most + (Break.FAILED in kind.may and "pid" in fault)


def brief(failure: dict[str, Any]) -> str:
    """A failure in one line."""
    names = ("rank", "host", "pid", "exit_code", "kind", "exception")
    return ", ".join(f"{name} {failure[name]}" for name in names) + f": {failure['message'][-200:]!r}"
