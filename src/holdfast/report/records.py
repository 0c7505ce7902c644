"""The records of a report. Times ending in `_s` are seconds since the node's agent began, on its own clock."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from holdfast.errors.failure import Failure


class Outcome(StrEnum):
    """How a run or an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"

    STOPPED = "stopped"
    """The attempt ended in an orderly way before its work was done: nodes came or went, or somebody asked."""

    INTERRUPTED = "interrupted"
    """A person or a scheduler ended the run."""

    CLOSED = "closed"
    """The run was over for this node before its work was done: other nodes had ended it."""

    RUNNING = "running"

    LOST = "lost"
    """The agent has recorded no end, and it is gone or the others went on without it: it or its machine was killed."""

    UNKNOWN = "unknown"
    """No end is recorded, and only the agent's machine could tell whether it still runs."""


class Activity(StrEnum):
    """The activities that a node's time is divided into."""

    STARTING = "starting and ending"
    """The agent's own start, the first start of the workers, and the end."""

    WAITING = "waiting"
    """Waiting in the rendezvous for other nodes."""

    RESTARTING = "restarting"
    """From the end of an attempt until the workers of the next one run, without the waiting."""

    TRAINING = "training"
    """Workers ran in an attempt that succeeded, still runs, or was stopped in an orderly way."""

    LOST = "lost"
    """Workers ran in an attempt that failed: unsaved work has to be repeated."""


class Verdict(Struct, kw_only=True):
    """The verdict on a failed attempt: the cause, how many workers only lost it as a peer, and the decision."""

    cause: Failure
    victims: int = 0
    decision: str = ""
    reason: str = ""


class Stacks(Struct, kw_only=True):
    """Collected stacks.

    Why they were collected, the file in the run's directory, the outlier ranks, and a summary of where the workers
    were.
    """

    reason: str = ""
    file: str = ""
    outliers: list[int] = field(default_factory=list)
    where: list[str] = field(default_factory=list)


class WarningNote(Struct, kw_only=True):
    """Something that did not end an attempt but that a person should know. `rank` is None if no worker is concerned."""

    text: str = ""
    rank: int | None = None
    attempt: int = 0


class Attempt(Struct, kw_only=True):
    """One start of a node's workers, until their end.

    `begin_s` and `end_s` are None where the events do not say. `generation` is None in a job that is not elastic. `job`
    is the id that all nodes of the job share, "" where they share none. `master` is MASTER_ADDR:MASTER_PORT.
    """

    number: int
    job: str = ""
    restart: int = 0
    max_restarts: int | None = None
    generation: int | None = None
    master: str = ""
    node: int | None = None
    nodes: int = 0
    world_size: int = 0
    ranks: list[int] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    waited_s: float = 0.0
    started_s: float = 0.0
    begin_s: float | None = None
    end_s: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    reason: str = ""
    failures: list[Failure] = field(default_factory=list)
    verdict: Verdict | None = None
    stacks: list[Stacks] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        """The key of this attempt, the same on every node."""
        return ("attempt", self.number) if self.generation is None else ("generation", self.generation)


class Span(Struct, kw_only=True):
    """An activity of a node from `begin_s` to `end_s`; `attempt` is 0 where no workers ran."""

    activity: Activity
    begin_s: float
    end_s: float
    attempt: int = 0


class Node(Struct, kw_only=True):
    """One agent's part of a job. `spans` is empty where the events do not say when workers ran.

    `agent` is the id of this start of this agent. `job` is the id that all nodes of the job share, "" where they share
    none. `min_nodes` and `max_nodes` are 0 where the events do not say. `max_restarts` is the job's budget.
    """

    directory: str
    run_id: str = ""
    job: str = ""
    agent: str = ""
    host: str = ""
    group_rank: int | None = None
    version: str = ""
    pid: int = 0
    command: list[str] = field(default_factory=list)
    role: str = ""
    backend: str = ""
    nproc: int = 0
    min_nodes: int = 0
    max_nodes: int = 0
    max_restarts: int = 0
    restarts: int = 0
    started_at: float = 0.0
    length_s: float = 0.0
    outcome: Outcome = Outcome.UNKNOWN
    reason: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    warnings: list[WarningNote] = field(default_factory=list)
    skipped_lines: int = 0
    is_cut: bool = False
    """Whether the log was too long to be read completely."""

    @property
    def key(self) -> tuple[str, int] | None:
        """The key of the agent's last attempt."""
        return self.attempts[-1].key if self.attempts else None

    def time_s(self) -> dict[Activity, float]:
        """The node's time by activity, without gaps. Empty if it is unknown."""
        if not self.spans:
            return {}
        spent = dict.fromkeys(Activity, 0.0)
        for span in self.spans:
            spent[span.activity] += span.end_s - span.begin_s
        return spent


class Round(Struct, kw_only=True):
    """One attempt of the whole job: the attempts of its nodes, by their index in the run."""

    key: tuple[str, int]
    attempts: dict[int, Attempt]
    outcome: Outcome = Outcome.UNKNOWN
    reason: str = ""
    verdict: Verdict | None = None

    def size(self) -> int:
        """The number of nodes in this attempt, whether or not all of them are known here."""
        return max([len(self.attempts), *(attempt.nodes for attempt in self.attempts.values())])

    def world_size(self) -> int:
        """The number of workers in this attempt; 0 if unknown."""
        return max((attempt.world_size for attempt in self.attempts.values()), default=0)

    def failures(self) -> list[Failure]:
        """The failures that nodes recorded of their own workers, by rank."""
        by_rank = {failure.rank: failure for attempt in self.attempts.values() for failure in attempt.failures}
        return [by_rank[rank] for rank in sorted(by_rank)]


class Run(Struct, kw_only=True):
    """One job: its agents, the attempts of all of them, and the verdict that says most about the end.

    The agents that were present at the end come first, by rank. `job` is an id that names only this job.
    """

    run_id: str
    job: str = ""
    outcome: Outcome
    reason: str = ""
    verdict: Verdict | None = None
    nodes: list[Node] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def time_s(self) -> dict[Activity, float]:
        """The time of all nodes together."""
        spent: dict[Activity, float] = {}
        for node in self.nodes:
            for activity, seconds in node.time_s().items():
                spent[activity] = spent.get(activity, 0.0) + seconds
        return spent

    def offsets_s(self) -> list[float]:
        """The shift of each node's own time line, so that attempts of the same generation are aligned.

        Clocks of different machines are not compared: two nodes are aligned by the first attempt that both were in.
        """
        at: dict[tuple[str, int], float] = {}
        offsets: dict[int, float] = {}
        left = dict(enumerate(self.nodes))
        while left:
            # Next comes a node that shares an attempt with those already placed. If none does, any node will do.
            shares = (place for place, node in left.items() if any(each.key in at for each in node.attempts))
            place = next(shares, next(iter(left)))
            begins = [(each.key, each.begin_s) for each in left.pop(place).attempts if each.begin_s is not None]
            offsets[place] = next((at[key] - begin for key, begin in begins if key in at), 0.0)
            for key, begin in begins:
                at.setdefault(key, begin + offsets[place])
        earliest = min(offsets.values(), default=0.0)
        return [offsets[place] - earliest for place in range(len(self.nodes))]

    def length_s(self) -> float:
        """The time from the start of the first agent to the end of the last, as far as attempts align them."""
        return max(
            (node.length_s + offset for node, offset in zip(self.nodes, self.offsets_s(), strict=True)), default=0.0
        )

    def first(self) -> Node:
        """An agent that was in the first known attempt."""
        return self.nodes[min(self.rounds[0].attempts)] if self.rounds else self.nodes[0]

    def was_left_behind(self, node: Node) -> bool:
        """Whether the others went on without this agent, so that another one had its rank in the end."""
        return node.key != self.nodes[0].key and bool(node.attempts) and node.attempts[-1].generation is not None

    def nodes_at_once(self) -> int:
        """The most nodes that the job had at any time. An agent that replaces another does not count twice."""
        return max((each.size() for each in self.rounds), default=len(self.nodes))

    def warnings(self) -> list[tuple[Node, WarningNote]]:
        """The warnings of all agents, each with its agent."""
        return [(node, warning) for node in self.nodes for warning in node.warnings]
