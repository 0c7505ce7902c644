"""A run as a report tells of it. Times ending in `_s` are seconds since the node's agent began, on its own clock."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field


class Outcome(StrEnum):
    """What became of a run, or of an attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"

    STOPPED = "stopped"
    """An attempt that ended in an orderly way before its work was done: nodes came or went, or somebody asked."""

    INTERRUPTED = "interrupted"
    """A run that a person or a scheduler ended."""

    CLOSED = "closed"
    """A run that was over for this node before its work was done: the others had ended it."""

    RUNNING = "running"

    LOST = "lost"
    """The agent is gone and has not recorded an end: it was killed, or its machine was."""

    UNKNOWN = "unknown"
    """No end is recorded, and only the machine it ran on could tell whether it goes on."""


class Activity(StrEnum):
    """What a node's time is spent with."""

    STARTING = "starting and ending"
    """The agent's own start, the first start of the workers, and the end."""

    WAITING = "waiting"
    """In the rendezvous, for other nodes."""

    RESTARTING = "restarting"
    """From the end of an attempt until the workers of the next one run, without the waiting."""

    TRAINING = "training"
    """Workers ran, in an attempt that succeeded, that goes on, or that was stopped in an orderly way."""

    LOST = "lost"
    """Workers ran in an attempt that failed: what they had not saved is done again."""


class Failure(Struct, kw_only=True):
    """A worker that failed, as its node recorded it."""

    rank: int = -1
    local_rank: int = -1
    host: str = ""
    pid: int = 0
    exit_code: int | None = None
    kind: str = ""
    message: str = ""
    where: str = ""
    exception: str = ""
    log_file: str = ""
    max_rss_kib: int = 0
    ran_s: float = 0.0
    timestamp: float = 0.0


class Verdict(Struct, kw_only=True):
    """What the job made of a failed attempt: the cause, how many only lost it as a peer, and what was decided."""

    cause: Failure
    victims: int = 0
    decision: str = ""
    reason: str = ""


class Stacks(Struct, kw_only=True):
    """Stacks that were collected: why, the file in the run's directory, and the ranks that stood out."""

    reason: str = ""
    file: str = ""
    outliers: list[int] = field(default_factory=list)


class Attempt(Struct, kw_only=True):
    """One start of a node's workers, until their end.

    `begin_s` and `end_s` are None where the events do not say; `generation` is None where nodes do not come and go.
    """

    number: int
    restart: int = 0
    generation: int | None = None
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
        """What the same attempt has on every node."""
        return ("attempt", self.number) if self.generation is None else ("generation", self.generation)


class Span(Struct, kw_only=True):
    """What a node did from `begin_s` to `end_s`; `attempt` is 0 where no workers ran."""

    activity: Activity
    begin_s: float
    end_s: float
    attempt: int = 0


class Node(Struct, kw_only=True):
    """One agent's part of a run. `spans` is empty where the events do not say when workers ran."""

    directory: str
    run_id: str = ""
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
    skipped_lines: int = 0

    def time_s(self) -> dict[Activity, float]:
        """How much of the node's time each activity took; together, all of it. Empty where that is not known."""
        if not self.spans:
            return {}
        spent = dict.fromkeys(Activity, 0.0)
        for span in self.spans:
            spent[span.activity] += span.end_s - span.begin_s
        return spent


class Round(Struct, kw_only=True):
    """One attempt of the whole job: what each node, by its place in the run, made of it."""

    key: tuple[str, int]
    attempts: dict[int, Attempt]
    outcome: Outcome = Outcome.UNKNOWN
    reason: str = ""
    verdict: Verdict | None = None

    def failures(self) -> list[Failure]:
        """Those that nodes recorded of their own workers, by rank."""
        by_rank = {failure.rank: failure for attempt in self.attempts.values() for failure in attempt.failures}
        return [by_rank[rank] for rank in sorted(by_rank)]


class Run(Struct, kw_only=True):
    """A run: its nodes by rank, the attempts of all of them, and the verdict that says most about the end."""

    run_id: str
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
        """How far each node's own time line is shifted so that attempts of the same generation stand below each other.

        Clocks of different machines are not compared: what aligns two nodes is the first attempt that both were in.
        """
        at: dict[tuple[str, int], float] = {}
        offsets: list[float] = []
        for node in self.nodes:
            begins = [(each.key, each.begin_s) for each in node.attempts if each.begin_s is not None]
            offset = next((at[key] - begin for key, begin in begins if key in at), 0.0)
            for key, begin in begins:
                at.setdefault(key, begin + offset)
            offsets.append(offset)
        earliest = min(offsets, default=0.0)
        return [offset - earliest for offset in offsets]
