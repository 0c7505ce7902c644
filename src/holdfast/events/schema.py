"""The events that a run's report is made from, as the agent writes them and a report reads them.

They go only to the file in the run's directory. In a line of that file, `metadata` has `format`, and the fields of the
event as the object `details`. A reader passes over events and fields that it does not know, and takes the default of a
field that is missing or of another type. So fields may be added, and none may change its meaning without a new format.

These are records of `holdfast.record_types` and not of msgspec, which a job of one node does not import.
"""

from __future__ import annotations

from holdfast.record_types import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from holdfast.errors.failure import Failure

FORMAT = 2
"""The version of the format. In format 1, which has no number, `details` is a string that holds the JSON object."""

OPENING_LINE_MAX_BYTES = 64 << 10
"""The longest line of the events that tell whose a log is, `RunStarted` and `AttemptStarted`. A reader that only wants
to know that skips longer lines.
"""

RUN_ID_MAX_CHARS = 1_000
"""How much of a run id is in a line. Nodes that meet in a store have shorter ones."""

PREFIX = "holdfast."
"""The names of our own events begin with it."""


class RunEvent(Frozen):
    """An event of a run."""

    NAME: ClassVar[str] = ""
    INLINE: ClassVar[str] = ""
    """The field whose own fields are written beside the event's others, if there is one."""


class RunStarted(RunEvent):
    """The agent starts. This is the first event of a run. `agent` is a random id of this start of this agent. Of a long
    `command`, the beginning is kept.
    """

    NAME: ClassVar[str] = "run.started"

    agent: str = ""
    version: str = ""
    pid: int = 0
    command: tuple[str, ...] = ()
    role: str = ""
    nproc: int = 0
    min_nodes: int = 0
    max_nodes: int = 0
    backend: str = ""
    max_restarts: int = 0


class AttemptStarted(RunEvent):
    """The workers of an attempt have started, with the seconds spent in the rendezvous and on their start. Of more than
    a thousand workers, `ranks` and `pids` have the first.
    """

    NAME: ClassVar[str] = "attempt.started"

    attempt: int | None = None
    job: str = ""
    restart: int = 0
    max_restarts: int | None = None
    generation: int | None = None
    master: str = ""
    node: int | None = None
    nodes: int = 0
    world_size: int = 0
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    waited_s: float = 0.0
    started_s: float = 0.0


class WorkerFailed(RunEvent):
    """Workers of the attempt failed, by global rank: one event for each."""

    NAME: ClassVar[str] = "failure"
    INLINE: ClassVar[str] = "failure"

    failure: Failure
    attempt: int | None = None


class Warned(RunEvent):
    """A warning that did not end the attempt. It is about a worker if `rank` is given."""

    NAME: ClassVar[str] = "warning"

    attempt: int = 0
    rank: int | None = None
    text: str = ""


class LateCrash(RunEvent):
    """A worker crashed after its program ended well. It counts as a success. `text` is for people."""

    NAME: ClassVar[str] = "warning"
    INLINE: ClassVar[str] = "crash"

    crash: Failure
    attempt: int = 0
    text: str = ""


class AttemptEnded(RunEvent):
    """An attempt succeeded, failed, or was stopped."""

    NAME: ClassVar[str] = "attempt.ended"

    attempt: int | None = None
    outcome: str = ""
    reason: str = ""
    ran_s: float | None = None


class VerdictReached(RunEvent):
    """The cause of the job's last failed attempt, on any node, and what follows.

    If `generation` is given and is not the attempt's, this node was not part of the generation that failed.
    """

    NAME: ClassVar[str] = "verdict"

    cause: Failure
    attempt: int | None = None
    generation: int | None = None
    victims: int = 0
    decision: str = ""
    reason: str = ""


class StacksCollected(RunEvent):
    """The stacks of workers were collected: at a hang, at a user's request, or before a stop after a failure.

    `where` has a line for each group of ranks: where it was.
    """

    NAME: ClassVar[str] = "stacks"

    attempt: int | None = None
    reason: str = ""
    file: str = ""
    outliers: tuple[int, ...] = ()
    where: tuple[str, ...] = ()


class RunEnded(RunEvent):
    """The agent's part of the run is over. This is the last event of a run, unless the agent was killed."""

    NAME: ClassVar[str] = "run.ended"

    outcome: str = ""
    reason: str = ""
    restarts: int | None = None


EVENTS: tuple[type[RunEvent], ...] = (
    *(RunStarted, AttemptStarted, WorkerFailed, LateCrash, AttemptEnded),
    *(VerdictReached, StacksCollected, Warned, RunEnded),
)
"""All kinds of events. If two have the same name, a report uses the last one."""


def field_types(event: type[RunEvent]) -> dict[str, str]:
    """The fields of a kind of event and their types, as they are written above."""
    kinds = event.__dict__["__annotations__"]  # noqa: RUF063 - `inspect` takes longer to import than holdfast
    return {name: kind for name, kind in kinds.items() if not kind.startswith("ClassVar")}


def details_of(event: RunEvent) -> dict[str, Any]:
    """The fields of an event as JSON objects and lists."""
    details: dict[str, Any] = {}
    for name, kind in field_types(type(event)).items():
        value = getattr(event, name)
        if name == event.INLINE:
            details |= value.facts()
        else:
            details[name] = value.facts() if kind == "Failure" else value
    return details


class RecordedEvent:
    """An event of a run at its time, as a line of the run's file. `monotonic` tells lengths of time."""

    __slots__ = ("event", "group_rank", "hostname", "monotonic", "run_id", "timestamp")

    def __init__(
        self, event: RunEvent, *, timestamp: float, monotonic: float, run_id: str, hostname: str, group_rank: int | None
    ) -> None:
        self.event = event
        self.timestamp = timestamp
        self.monotonic = monotonic
        self.run_id = run_id
        self.hostname = hostname
        self.group_rank = group_rank

    def fields(self) -> dict[str, Any]:
        """The fields of the line. Those outside `metadata` are the fields of torch's events."""
        return {
            "name": f"{PREFIX}{self.event.NAME}",
            "source": "AGENT",
            "timestamp": self.timestamp,
            "metadata": {
                "format": FORMAT,
                "run_id": self.run_id[:RUN_ID_MAX_CHARS],
                "hostname": self.hostname,
                "group_rank": self.group_rank,
                "monotonic": self.monotonic,
                "details": details_of(self.event),
            },
        }
