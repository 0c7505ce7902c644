"""The records that nodes write for each other, and their keys.

Everything of a run is under ``runs/<digest>-<run id>/group/``. The digest of the run id comes first, so that no run's
keys begin with the name of another run: deleting everything of ``job1`` by prefix leaves ``job10`` alone.

| key | written by | holds |
|---|---|---|
| ``nodes/<node>`` | the node, under its lease | `Node`: what it is and what it offers |
| ``alive/<node>`` | the node, under its lease | nothing: shows that the lease holds if the record is deleted |
| ``shared/leader`` | the node that leads, under its lease | the node's id |
| ``shared/generation`` | the leader | `Generation`: who is in, in which order, and where the master is |
| ``shared/broken`` | the first node to find out | `Broken`: the generation is over, and why |
| ``shared/end`` | the leader, or a node that closes the run | `End`: the job is over, and how it ended |
| ``shared/short`` | the leader | `Short`: there are too few nodes, so the join timeout runs for all nodes |
| ``shared/refused/<node>`` | the leader | why this node can never be let in |
| ``shared/stacks`` | a node | `StacksRequest`: all nodes are asked for the stacks of their workers |
| ``done/<generation>/<node>`` | the node | nothing: shows that all its workers succeeded |

Every node watches ``shared/``, which changes a few times in a generation. Only the leader watches the whole group. So a
change of the membership costs one or two messages per node, however many nodes there are. Values are JSON, readable
with etcdctl.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from holdfast.decoding import (
    LINE_MAX_CHARS,
    NAME_MAX_CHARS,
    TEXT_MAX_CHARS,
    Count,
    Id,
    IdOrNone,
    Name,
    Number,
    Port,
    Seconds,
    Timestamp,
    UndecodableError,
    bound_end,
    bound_lines,
    decoded,
)
from holdfast.errors.kind import FailureKind
from holdfast.errors.text import all_encodable
from holdfast.files import NAME_PATTERN
from holdfast.rendezvous.handler import StacksOccasion

if TYPE_CHECKING:
    from holdfast.coordination.model import Entry

NO_RANK = -1

WORKERS_MAX = 1 << 16
"""The number of workers that a node may have."""

WORLD_MAX = 1 << 22
"""The number of workers that a job may have in all."""

MEMBERS_MAX = 1 << 16
"""The number of nodes that a generation may have, and that a record may name."""

LEASE_MAX_S = 1e6
"""The longest lease that a record may state. A node may ask for a day at most."""

REASON_MAX_CHARS = 20_000
"""How much of a reason is kept: a failure's message, and the text before it."""

INTERFACES_MAX = 256
"""The number of its own addresses that a node's record may hold."""

GENERATION_MAX = 1 << 62
"""The largest number of a generation."""

Workers = Annotated[int, Meta(ge=0, le=WORKERS_MAX)]
Rank = Annotated[int, Meta(ge=NO_RANK, le=WORLD_MAX)]
Lease = Annotated[float, Meta(ge=0, le=LEASE_MAX_S)]
GenerationNumber = Annotated[int, Meta(ge=0, le=GENERATION_MAX)]

RUN_DIGEST_CHARACTERS = 12
"""How many characters of the run id's digest its keys begin with."""

TEXT_MAX_CHARACTERS = TEXT_MAX_CHARS
"""How much of a traceback other nodes receive: its end, which has the reason."""

BRIEF_MAX_CHARACTERS = 1_000
"""How much of a text is kept that thousands of nodes may send at once: of a victim, or of a failure that is over."""


class Failure(Struct, frozen=True):
    """A failed worker, as every node reports it."""

    node: IdOrNone
    host: str
    rank: Number
    local_rank: Number
    pid: Count
    exit_code: Number
    message: str
    timestamp: Timestamp
    error_file: str = ""
    traceback: str = ""
    kind: FailureKind = FailureKind.EXIT
    where: str = ""
    exception: str = ""
    log_file: str = ""
    max_rss_kib: Count = 0
    ran_s: Seconds = 0.0
    others: Count = 0
    """How many other workers of its node had failed by then."""
    hopeless: str = ""
    """Why no restart can help, or ""."""

    def __post_init__(self) -> None:
        bound_lines(self, NAME_MAX_CHARS, "host")
        bound_lines(self, LINE_MAX_CHARS, "error_file", "where", "exception", "log_file", "hopeless")
        bound_lines(self, TEXT_MAX_CHARS, "message")
        bound_end(self, TEXT_MAX_CHARS, "traceback")


class Fingerprint(Struct, frozen=True, omit_defaults=True):
    """What a node was told to run, for comparison: a program's name, a digest of its arguments, the limits."""

    program: str = ""
    arguments: str = ""
    min_nodes: Count = 0
    max_nodes: Count = 0
    max_restarts: Count = 0

    def __post_init__(self) -> None:
        bound_lines(self, LINE_MAX_CHARS, "program", "arguments")


def differences(mine: Fingerprint, jobs: Fingerprint) -> list[str]:
    """How this node's settings differ from those of the node that began the job, one line each.

    The settings of that node count. A different program name is not listed: such a node is refused.
    """
    pairs = [
        ("--nnodes", f"{mine.min_nodes}:{mine.max_nodes}", f"{jobs.min_nodes}:{jobs.max_nodes}"),
        ("--max-restarts", str(mine.max_restarts), str(jobs.max_restarts)),
    ]
    lines = [
        f"{option} is {here} here and {there} on the node that started the job, whose value is used; give all nodes "
        "the same"
        for option, here, there in pairs
        if here != there
    ]
    if mine.arguments and jobs.arguments and mine.arguments != jobs.arguments:
        lines.append("the program's arguments differ from those on the node that started the job")
    return lines


class Node(Struct, frozen=True):
    """A node as the others see it.

    `port` and `coordinator_port` are for the workers' master and for JAX's coordinator, if the node gets rank 0.
    `stopped` is the newest generation whose workers have all ended here: a node of the last generation can be in the
    next one only once it has said so. `failure` is how a worker of that generation failed here, if one did. `job` is
    the job that the node took part in last, by the id that generations carry. `lease_s` is the longest lease that it
    knows of. `running` is a generation whose workers may still live there although the store no longer has its record.
    `addresses` are those of all its interfaces: its workers may connect from any of them.
    """

    host: str
    address: str
    port: Port
    role: str
    workers: Workers
    rank: Rank = NO_RANK
    stopped: GenerationNumber = 0
    coordinator_port: Port = 0
    failure: Failure | None = None
    job: IdOrNone = ""
    lease_s: Lease = 0.0
    running: GenerationNumber = 0
    fingerprint: Fingerprint = Fingerprint()
    addresses: Annotated[tuple[Name, ...], Meta(max_length=INTERFACES_MAX)] = ()
    known: GenerationNumber = 0
    """The newest generation that the node had heard of when it came: the store may have lost the record since."""
    known_job: IdOrNone = ""
    """The job of the generation that it had seen last: numbers begin again with each job."""

    def __post_init__(self) -> None:
        bound_lines(self, NAME_MAX_CHARS, "host", "address", "role")


class Member(Struct, frozen=True, array_like=True):
    """A node of a generation. Its rank is its position among the members.

    Every node reads a record with thousands of members, so their texts are only bounded in length. Code that shows one
    must make it visible.
    """

    node: Name
    host: Name
    address: Name
    role: Name
    workers: Workers


class Verdict(Struct, frozen=True):
    """Why a generation failed: the cause, the number of other workers that failed with it, and what follows."""

    cause: Failure
    victims: Count = 0
    reason: str = ""
    generation: GenerationNumber = 0

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARS, "reason")


class Remembered(Struct, frozen=True, omit_defaults=True):
    """The memory of earlier failures: see `holdfast.rendezvous.restarts.Past`."""

    spent: Count = 0
    faults: Count = 0
    signature: str = ""
    node: IdOrNone = ""
    blames: Count = 0
    left_out: Annotated[tuple[Name, ...], Meta(max_length=MEMBERS_MAX)] = ()

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARS, "signature")


class Arrivals(Struct, frozen=True, omit_defaults=True):
    """The memory of machines that came and went: see `holdfast.rendezvous.admission`.

    `joins` counts the generations in a row that were broken to let nodes in. `losses` counts, by host, how often in a
    row a machine was lost soon after it came.
    """

    joins: Count = 0
    losses: Annotated[tuple[tuple[Name, Count], ...], Meta(max_length=MEMBERS_MAX)] = ()


class Generation(Struct, frozen=True):
    """The nodes that run together, in the order of their ranks, and how often the job was restarted after a failure.

    `job` distinguishes jobs that use the same run id: the first leader chooses it, and every later generation copies
    it. `after` is the verdict on the last generation, if that failed; `lost` are the hosts that it lost, if that is why
    it ended. `lease_s` is the longest lease of its members. `fingerprint` is what the first leader was told to run.
    """

    number: Annotated[int, Meta(ge=1, le=GENERATION_MAX)]
    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=MEMBERS_MAX)]
    master_address: str
    master_port: Port
    restarts: Count
    max_restarts: Count
    coordinator_port: Port = 0
    past: Remembered = Remembered()
    after: Verdict | None = None
    job: IdOrNone = ""
    lost: Annotated[tuple[Name, ...], Meta(max_length=MEMBERS_MAX)] = ()
    lease_s: Lease = 0.0
    arrivals: Arrivals = Arrivals()
    fingerprint: Fingerprint = Fingerprint()

    def __post_init__(self) -> None:
        bound_lines(self, NAME_MAX_CHARS, "master_address")
        if sum(member.workers for member in self.members) > WORLD_MAX:
            raise ValueError(f"more than {WORLD_MAX} workers")

    def rank_of(self, node: str) -> int | None:
        for rank, member in enumerate(self.members):
            if member.node == node:
                return rank
        return None


class BreakKind(StrEnum):
    """Why a generation is over."""

    FAILED = "failed"
    """A worker failed. Only this kind takes a restart from the job's budget."""

    LOST = "lost"
    """A node is gone, or had to stop its workers because others could have considered it gone."""

    JOINED = "joined"
    """Nodes are to be let in."""

    LEFT = "left"
    """A node has announced that it is about to leave: workers have time to end by themselves."""


def brief(failure: Failure) -> Failure:
    """A failure with its text shortened, because thousands of nodes may have one."""
    return msgspec.structs.replace(failure, traceback=failure.traceback[-BRIEF_MAX_CHARACTERS:])


class Broken(Struct, frozen=True):
    """The end of a generation.

    `nodes_left` is how many nodes the leader counts, or 0 if another node wrote the record. `joining` are the nodes to
    be let in, by name, with their hosts. `lost` are the names of the nodes that are gone.
    """

    generation: GenerationNumber
    kind: BreakKind
    reason: str
    failure: Failure | None = None
    nodes_left: Count = 0
    joining: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=MEMBERS_MAX)] = ()
    lost: Annotated[tuple[Name, ...], Meta(max_length=MEMBERS_MAX)] = ()

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARS, "reason")


class Short(Struct, frozen=True):
    """There are fewer nodes than the job needs. Deleted as soon as there are enough."""

    nodes: Count
    needed: Count


class EndKind(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"

    CLOSED = "closed"
    """A node closed the rendezvous: it cannot go on, and says why."""


class End(Struct, frozen=True):
    """The end of the job, the same for every node.

    After a failure: the cause, how many workers failed with it, and why the job was not restarted.
    """

    kind: EndKind
    reason: str
    failure: Failure | None = None
    victims: Count = 0
    ruling: str = ""

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARS, "reason", "ruling")


class StacksRequest(Struct, frozen=True):
    """A request for the stacks of all workers of this generation.

    `id` becomes a file name on each node, and `reason` is for people.
    """

    generation: GenerationNumber
    id: Annotated[str, Meta(pattern=rf"\A{NAME_PATTERN}\Z")]
    node: Id
    reason: str
    occasion: StacksOccasion = StacksOccasion.REQUEST

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARS, "reason")


class Keys:
    """The keys of one run."""

    __slots__ = (
        *("alive", "broken", "done", "end", "generation", "group", "leader", "nodes"),
        *("refused", "run", "shared", "short", "stacks", "values"),
    )

    def __init__(self, run_id: str) -> None:
        digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:RUN_DIGEST_CHARACTERS]
        self.run = f"runs/{digest}-{quote(run_id, safe='', errors='backslashreplace')}/"
        self.group = f"{self.run}group/"
        self.shared = f"{self.group}shared/"
        self.leader = f"{self.shared}leader"
        self.generation = f"{self.shared}generation"
        self.broken = f"{self.shared}broken"
        self.end = f"{self.shared}end"
        self.short = f"{self.shared}short"
        self.refused = f"{self.shared}refused/"
        self.stacks = f"{self.shared}stacks"
        self.nodes = f"{self.group}nodes/"
        self.alive = f"{self.group}alive/"
        self.done = f"{self.group}done/"
        self.values = f"{self.run}values/"

    def node(self, node: str) -> str:
        return f"{self.nodes}{node}"

    def alive_of(self, node: str) -> str:
        return f"{self.alive}{node}"

    def done_by(self, generation: int, node: str) -> str:
        return f"{self.done}{generation}/{node}"

    def values_of(self, generation: int) -> str:
        """The prefix of the values that the workers and agents of a generation keep."""
        return f"{self.values}{generation}/"


Record = TypeVar("Record", Node, Generation, Broken, End, Short, StacksRequest)


def agent_of(node: str) -> str:
    """The agent's part of a node's name. The rest changes with each registration."""
    return node.rpartition(".")[0] or node


def encode(record: Struct) -> bytes:
    """A record for the store. Text that UTF-8 cannot encode, such as a file name in other bytes, is escaped."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(all_encodable(msgspec.to_builtins(record)))


_DECODERS: dict[type[Struct], Any] = {}


def decode(entry: Entry, kind: type[Record]) -> Record:
    """The record in an entry.

    Raises:
        RendezvousStateError: the entry is malformed: another program, or another version of holdfast, wrote it.
    """
    try:
        decoder = _DECODERS.get(kind) or _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
        record: Record = decoded(decoder, entry.value)
    except UndecodableError as error:
        from holdfast.rendezvous.errors import RendezvousStateError

        raise RendezvousStateError(
            f"{entry.key} in the store is not what holdfast writes ({error}); does something else use this run id?"
        ) from None
    return record
