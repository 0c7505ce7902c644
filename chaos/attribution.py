"""Whether what a node told of a generation's end is what was done to it: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.kinds import ADD_NODE, KILL_WORKER, KINDS, MOMENTS, REMOVE_NODE, Break

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.record import Entry

SIGKILL_CODE = -9

MOMENT_LEASE_SHARE = 0.5
"""A moment that took this share of a lease, because the machine was busy, may cost the node its place: workers are told
to stop at three quarters, and the last renewal may have been a while before.
"""

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


class Stage(NamedTuple):
    """What was done between two times at which the world was seen to run, and the generations of both."""

    name: str
    faults: tuple[Entry, ...]
    returning: frozenset[str]
    before: int
    after: int
    is_slow: bool = False
    mute: frozenset[str] = frozenset()
    """The nodes whose disk was full, now or when the generation began, so that what they told may not have been kept:
    how it ended, or that they were in it.
    """

    @property
    def text(self) -> str:
        done = [f"{fault['kind']} {fault['node']}".rstrip() for fault in self.faults]
        done += [f"the return of {node}" for node in sorted(self.returning)]
        return ", ".join([*done, *([SLOW_NODES] if self.is_slow else [])]) or "nothing"


class Expected:
    """What may be told of a generation that ended in a stage.

    Attributes:
        killed: the faults that killed a worker, by its process.
        lost, left, joined: the nodes that were.
        away: those that were to be away for a moment only, and were for longer.
        is_slow: whether the machine was, so that any node may have been away.
        mute: the nodes that may have told more than was kept.
    """

    def __init__(self, stage: Stage, lease_s: float) -> None:
        faults = stage.faults
        self.is_slow = stage.is_slow
        self.mute = stage.mute
        self.killed = {fault["pid"]: fault for fault in faults if fault["kind"] == KILL_WORKER and fault["hit"]}
        self.away = {
            fault["node"]
            for fault in faults
            if fault["kind"] in MOMENTS and fault["took_s"] > MOMENT_LEASE_SHARE * lease_s
        }
        self.lost = {fault["node"] for fault in faults if KINDS[fault["kind"]].breaks is Break.LOST} | self.away
        self.left = {fault["node"] for fault in faults if fault["kind"] == REMOVE_NODE}
        self.joined = {fault["node"] for fault in faults if fault["kind"] == ADD_NODE} | stage.returning | self.away

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
            or self._is_of_nodes(reason),
        }
        return "" if is_right[outcome] else f"{outcome}: {reason}"

    def _is_known(self, failure: dict[str, Any]) -> bool:
        """Killed by the storm, or the victim of whoever was."""
        is_killed = failure["pid"] in self.killed and (failure["kind"], failure["exit_code"]) == (
            "killed",
            SIGKILL_CODE,
        )
        return is_killed or failure["kind"] == "communication"

    def _is_of_itself(self, node: str, reason: str) -> bool:
        """What a node says of itself that could not be reached, that was stopped, or that was asked to go."""
        lost = ("could not renew its lease", "the store cannot be reached", "the others went on without this node")
        is_lost = node in self.lost or self.is_slow
        return (is_lost and any(words in reason for words in lost)) or (node in self.left and "SIGTERM" in reason)

    def _is_of_a_worker(self, reason: str, others: Sequence[Told]) -> bool:
        """A worker that was killed, or one that lost its peer. The latter is told before anybody can know better; it
        must not be the verdict. How a worker of a mute node failed is not known, so there it is left to that law alone.
        """
        match = _FAILED.match(reason)
        if match is None:
            return False
        rank, host = int(match[1]), match[2]
        told = [failure for other in others if other.node == host for failure in other.failures]
        is_killed = any((fault["rank"], fault["node"]) == (rank, host) for fault in self.killed.values())
        is_victim = any(failure["rank"] == rank and failure["kind"] == "communication" for failure in told)
        return is_killed or is_victim or host in self.mute

    def _is_of_nodes(self, reason: str) -> bool:
        """Nodes that were lost, that came, that went: these, and no others."""
        named = set(_NODE.findall(reason))
        return bool(named) and (
            (reason.startswith("lost ") and (self.is_slow or named <= self.lost))
            or (reason.startswith("letting in ") and (self.is_slow or named <= self.joined))
            or (reason.endswith(" had to stop its workers") and (self.is_slow or named <= self.lost))
            or (reason.endswith(" leaves: SIGTERM") and named <= self.left)
        )


def brief(failure: dict[str, Any]) -> str:
    """A failure in one line."""
    names = ("rank", "host", "pid", "exit_code", "kind", "exception")
    return ", ".join(f"{name} {failure[name]}" for name in names) + f": {failure['message'][-200:]!r}"
