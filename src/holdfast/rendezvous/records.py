"""What nodes write for each other, and where.

Everything of a run is under ``runs/<digest>-<run id>/group/``. The digest of the run id comes first, so that no run's
keys begin with the name of another run: who deletes everything of ``job1`` by prefix leaves ``job10`` alone.

| key | written by | holds |
|---|---|---|
| ``nodes/<node>`` | the node, under its lease | `Node`: what it is and what it offers |
| ``alive/<node>`` | the node, under its lease | nothing: that the lease holds, should somebody delete the record |
| ``shared/leader`` | the node that leads, under its lease | the node's id |
| ``shared/generation`` | the leader | `Generation`: who is in, in which order, and where the master is |
| ``shared/broken`` | whoever finds out first | `Broken`: the generation is over, and why |
| ``shared/end`` | the leader, or a node that closes the run | `End`: the job is over, and how it ended |
| ``shared/short`` | the leader | `Short`: there are too few nodes, so the join timeout runs for everybody |
| ``shared/refused/<node>`` | the leader | why this node can never be let in |
| ``shared/stacks`` | a node | `StacksRequest`: all nodes are to say where their workers are |
| ``done/<generation>/<node>`` | the node | nothing: that all its workers succeeded |

Everybody watches ``shared/``, which changes a few times in a generation. The leader alone watches the whole group.
So a change of the membership costs a message or two for each node, however many there are. Values are JSON, for people
with an etcdctl.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from holdfast.errors.kind import FailureKind
from holdfast.errors.text import all_encodable

if TYPE_CHECKING:
    from holdfast.coordination.model import Entry

NO_RANK = -1

RUN_DIGEST_CHARACTERS = 12
"""How much of the digest of a run id its keys begin with."""

TEXT_MAX_CHARACTERS = 16_384
"""How much of a traceback other nodes are told; its end, where the reason is."""

BRIEF_MAX_CHARACTERS = 1_000
"""How much of one that thousands of nodes may have at once: of a victim, and of what has been overcome."""


class Failure(Struct, frozen=True):
    """A worker that failed, as every node tells of it."""

    node: str
    host: str
    rank: int
    local_rank: int
    pid: int
    exit_code: int
    message: str
    timestamp: float
    error_file: str = ""
    traceback: str = ""
    kind: FailureKind = FailureKind.EXIT
    where: str = ""
    exception: str = ""
    log_file: str = ""
    max_rss_kib: int = 0
    ran_s: float = 0.0
    others: int = 0
    """How many more workers of its node had failed by then."""
    hopeless: str = ""
    """Why no restart can help, or ""."""


class Fingerprint(Struct, frozen=True, omit_defaults=True):
    """What a node was told to run, for others to compare: a program's name, a digest of its arguments, the limits."""

    program: str = ""
    arguments: str = ""
    min_nodes: int = 0
    max_nodes: int = 0
    max_restarts: int = 0


def differences(mine: Fingerprint, jobs: Fingerprint) -> list[str]:
    """What this node was told that the node which began the job was not, a line each. That node's settings count. A
    program of another name is no small difference, and is refused.
    """
    pairs = [
        ("--nnodes", f"{mine.min_nodes}:{mine.max_nodes}", f"{jobs.min_nodes}:{jobs.max_nodes}"),
        ("--max-restarts", str(mine.max_restarts), str(jobs.max_restarts)),
    ]
    lines = [
        f"{option} is {here} here and {there} on the node that began the job, which counts; give all nodes the same"
        for option, here, there in pairs
        if here != there
    ]
    if mine.arguments and jobs.arguments and mine.arguments != jobs.arguments:
        lines.append("the arguments of the program are not those of the node that began the job")
    return lines


class Node(Struct, frozen=True):
    """A node as the others see it. `port` and `coordinator_port` are for the workers' master and for JAX's coordinator,
    should it have rank 0.

    `stopped` is the newest generation whose workers have all ended here: a node that was in the last generation
    can be in the next only once it has said so. `failure` is how a worker of that generation failed here, if one did.
    `job` is the job that it took part in last, by the id that generations carry. `lease_s` is the longest lease that it
    knows of. `running` is a generation whose
    workers may still live there although the store has no record of it any more. `addresses` are those of all its
    interfaces: its workers may reach others from any of them.
    """

    host: str
    address: str
    port: int
    role: str
    workers: int
    rank: int = NO_RANK
    stopped: int = 0
    coordinator_port: int = 0
    failure: Failure | None = None
    job: str = ""
    lease_s: float = 0.0
    running: int = 0
    fingerprint: Fingerprint = Fingerprint()
    addresses: tuple[str, ...] = ()
    known: int = 0
    """The newest generation that it had heard of when it came: the store may have lost the record since."""


class Member(Struct, frozen=True, array_like=True):
    """A node of a generation. Its rank is its place among the members."""

    node: str
    host: str
    address: str
    role: str
    workers: int


class Verdict(Struct, frozen=True):
    """What a generation failed of: the cause, how many other workers failed with it, and what follows."""

    cause: Failure
    victims: int = 0
    reason: str = ""
    generation: int = 0


class Remembered(Struct, frozen=True, omit_defaults=True):
    """What is remembered of the failures so far: see `holdfast.rendezvous.restarts.Past`."""

    spent: int = 0
    faults: int = 0
    place: str = ""
    node: str = ""
    blames: int = 0
    left_out: tuple[str, ...] = ()


class Arrivals(Struct, frozen=True, omit_defaults=True):
    """What is remembered of machines that came and went: see `holdfast.rendezvous.admission`.

    `joins` counts the generations in a row that were broken to let nodes in; `losses`, by host, how often in a row a
    machine was lost soon after it came.
    """

    joins: int = 0
    losses: tuple[tuple[str, int], ...] = ()


class Generation(Struct, frozen=True):
    """Who runs together, in the order of their ranks, and how often the job was restarted because it failed.

    `job` tells one job from the next that uses the same run id: the first leader chooses it, and every later generation
    copies it. `after` is what the last generation failed of, if it did; `lost` are the hosts it lost, if that is why it
    ended. `lease_s` is the longest lease of its members. `fingerprint` is what the first leader was told to run.
    """

    number: int
    members: tuple[Member, ...]
    master_address: str
    master_port: int
    restarts: int
    max_restarts: int
    coordinator_port: int = 0
    past: Remembered = Remembered()
    after: Verdict | None = None
    job: str = ""
    lost: tuple[str, ...] = ()
    lease_s: float = 0.0
    arrivals: Arrivals = Arrivals()
    fingerprint: Fingerprint = Fingerprint()

    def rank_of(self, node: str) -> int | None:
        for rank, member in enumerate(self.members):
            if member.node == node:
                return rank
        return None


class BreakKind(StrEnum):
    """Why a generation is over."""

    FAILED = "failed"
    """A worker failed. The only kind that takes a restart from the job's budget."""

    LOST = "lost"
    """A node is gone, or had to stop its workers because it could have been taken for gone."""

    JOINED = "joined"
    """Nodes are to be let in."""

    LEFT = "left"
    """A node is about to go, and has said so: there is time to end in peace."""


def brief(failure: Failure) -> Failure:
    """A failure with as much of its text as there can be thousands of."""
    return msgspec.structs.replace(failure, traceback=failure.traceback[-BRIEF_MAX_CHARACTERS:])


class Broken(Struct, frozen=True):
    """The end of a generation. `nodes_left` is how many the leader counts, or 0 if another node wrote it; `joining` are
    the nodes to be let in, by name, with their hosts; `lost` are those that are gone, by name.
    """

    generation: int
    kind: BreakKind
    reason: str
    failure: Failure | None = None
    nodes_left: int = 0
    joining: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()


class Short(Struct, frozen=True):
    """There are fewer nodes than the job needs. Gone as soon as there are enough."""

    nodes: int
    needed: int


class EndKind(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"

    CLOSED = "closed"
    """A node closed the rendezvous: it cannot go on, and says why."""


class End(Struct, frozen=True):
    """The end of the job, the same for every node. Of a failure, the cause, how many workers failed with it, and why it
    was not started again.
    """

    kind: EndKind
    reason: str
    failure: Failure | None = None
    victims: int = 0
    ruling: str = ""


class StacksRequest(Struct, frozen=True):
    """Every node of this generation is to say where its workers are. `reason` is for people."""

    generation: int
    id: str
    node: str
    reason: str


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
        """Where the workers and agents of a generation keep values of their own."""
        return f"{self.values}{generation}/"


Record = TypeVar("Record", Node, Generation, Broken, End, Short, StacksRequest)


def encode(record: Struct) -> bytes:
    """A record for the store. Text that UTF-8 cannot hold, such as a file name of other bytes, is told with escapes."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(all_encodable(msgspec.to_builtins(record)))


def decode(entry: Entry, kind: type[Record]) -> Record:
    """The record in an entry.

    Raises:
        RendezvousStateError: it holds something else; another program, or another version of this one, wrote it.
    """
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        from holdfast.rendezvous.errors import RendezvousStateError  # noqa: PLC0415 - only on the way out

        raise RendezvousStateError(
            f"{entry.key} in the store is not what holdfast writes ({error}); does something else use this run id?"
        ) from None
