"""The interface between an agent and a rendezvous backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum

from holdfast.record_types import like_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from select import poll
    from typing import Any, ClassVar, Protocol

    from holdfast.errors import ProcessFailure
    from holdfast.processes.launch import LastWill
    from holdfast.rendezvous.hosting import Hosting
    from holdfast.rendezvous.records import StacksRequest, Verdict
    from holdfast.settings import JobSettings

    class Meanwhile(Protocol):
        """The work of an agent while it waits for other nodes."""

        def register(self, poll: poll) -> None:
            """Register the descriptors to wait for."""

        def wait_s(self) -> float | None:
            """The seconds until there is something to do without an event; None for never."""

        def look(self) -> object:
            """Do the pending work."""


class StacksOccasion(StrEnum):
    """Why stacks are collected."""

    REQUEST = "request"
    """A user wants to see them."""

    HANG = "hang"
    """A worker makes no progress. The node that asks judges, and that ends the attempt."""

    TIMEOUT = "timeout"
    """A worker has timed out waiting for a peer."""


@like_dataclass
class RendezvousStoreInfo:
    """Where the workers of a round find each other: MASTER_ADDR and MASTER_PORT."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"

    __slots__ = ("master_addr", "master_port")

    def __init__(self, master_addr: str, master_port: int) -> None:
        self.master_addr = master_addr
        self.master_port = master_port

    @staticmethod
    def build(rank: int, store: Any, local_addr: str | None, server_port: int | None = None) -> RendezvousStoreInfo:
        """Agree on a place in `store`, which all nodes of the round share: the node of rank 0 chooses it.

        It chooses `local_addr`, or its full host name if that is None, and `server_port`, by default a free port.
        """
        own = RendezvousStoreInfo
        if rank == 0:
            store.set(own.MASTER_ADDR_KEY, (local_addr or _full_host_name()).encode())
            store.set(own.MASTER_PORT_KEY, str(server_port or _free_port()).encode())
        return own(store.get(own.MASTER_ADDR_KEY).decode(), int(store.get(own.MASTER_PORT_KEY)))

    def __repr__(self) -> str:
        return f"RendezvousStoreInfo(master_addr={self.master_addr!r}, master_port={self.master_port!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RendezvousStoreInfo):
            return NotImplemented
        return (self.master_addr, self.master_port) == (other.master_addr, other.master_port)

    def __hash__(self) -> int:
        return hash((self.master_addr, self.master_port))


def _full_host_name() -> str:
    import socket

    return socket.getfqdn()


def _free_port() -> int:
    from holdfast.rendezvous.hosting import free_port

    return free_port("")


class RendezvousInfo:
    """The result of a round: the rank of this node, the number of nodes, and what they share.

    Backends whose nodes agree on more add it here:

    - `restart_count` is how often the job was restarted; `generation` is the number of the round.
    - `nodes` has the role and the number of workers of every node, by rank.
    - `coordinator_port` is a port for JAX's coordinator beside the master's.
    - `hosting` holds the ports that this node serves to all workers if it has rank 0. The handler closes it.
    - `after` is the verdict on the last round, if that failed.
    - `job` is a random id that all nodes of the job share in all of its rounds, "" where the nodes share none.
    - `max_restarts` is the job's budget, None where each node has its own.
    - `lost` are the machines whose loss ended the last round, if that is why it ended.
    """

    __slots__ = (
        "after",
        "bootstrap_store_info",
        "coordinator_port",
        "generation",
        "hosting",
        "job",
        "lost",
        "max_restarts",
        "nodes",
        "rank",
        "restart_count",
        "store",
        "world_size",
    )

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        bootstrap_store_info: RendezvousStoreInfo,
        restart_count: int | None = None,
        generation: int | None = None,
        nodes: Sequence[tuple[str, int]] | None = None,
        coordinator_port: int | None = None,
        hosting: Hosting | None = None,
        after: Verdict | None = None,
        job: str = "",
        max_restarts: int | None = None,
        lost: Sequence[str] = (),
    ) -> None:
        self.store = store
        self.rank = rank
        self.world_size = world_size
        self.bootstrap_store_info = bootstrap_store_info
        self.restart_count = restart_count
        self.generation = generation
        self.nodes = nodes
        self.coordinator_port = coordinator_port
        self.hosting = hosting
        self.after = after
        self.job = job
        self.max_restarts = max_restarts
        self.lost = lost

    def __repr__(self) -> str:
        return f"RendezvousInfo(rank={self.rank}, world_size={self.world_size}, {self.bootstrap_store_info!r})"


class RoundOver:
    """Why a round is over for healthy workers. `may_finish` if they have time to end by themselves."""

    __slots__ = ("may_finish", "reason")

    def __init__(self, reason: str, *, may_finish: bool = False) -> None:
        self.reason = reason
        self.may_finish = may_finish

    def __repr__(self) -> str:
        return f"RoundOver({self.reason!r}, may_finish={self.may_finish})"


class RendezvousHandler(ABC):
    """Lets an agent meet the agents of other nodes, round after round.

    Subclass it to write your own backend. Every method that is not abstract has a default that suits a handler written
    for torch.
    """

    needs_polling = True
    """Whether only `num_nodes_waiting` reports newcomers, so that the agent has to poll it."""

    counts_restarts = False
    """Whether the nodes count restarts together: the restart budget belongs to the job, not to each node."""

    shares_stacks = False
    """Whether nodes tell each other where their workers are: `ask_for_stacks` asks them."""

    @abstractmethod
    def get_backend(self) -> str:
        """The name of the backend."""

    @property
    def use_agent_store(self) -> bool:
        """Whether the agent serves the workers' store at MASTER_ADDR:MASTER_PORT; if not, rank 0 does."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other nodes; returns when the round is complete.

        Raises:
            RendezvousClosedError: the job has ended.
            RendezvousTimeoutError: too few nodes came.
            RendezvousConnectionError: the store where nodes meet cannot be reached.
            RendezvousStateError: the store where nodes meet holds a malformed record.
            RendezvousGracefulExitError: this node is not needed.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the rendezvous is closed for good."""

    @abstractmethod
    def set_closed(self) -> None:
        """Close the rendezvous for good."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """The number of nodes that wait to be let in."""

    @abstractmethod
    def get_run_id(self) -> str:
        """The id that the nodes of a job share."""

    @abstractmethod
    def shutdown(self) -> bool:
        """Leave and free all resources; False if that failed."""

    # Extensions of torch's interface. Their defaults suit a handler that does not know them.

    def bring(self, settings: JobSettings) -> None:  # noqa: B027 - optional, does nothing
        """Set what this node contributes to its rounds: its role, its number of workers, its limits."""

    def identify(self, program: str, arguments: str) -> None:  # noqa: B027 - optional, does nothing
        """Set what the workers of this node run, to be compared with other nodes.

        `program` is the program's name. `arguments` is a digest of its arguments, "" if they are unknown.
        """

    def fileno(self) -> int | None:
        """A descriptor that is readable when `round_over` may have news, or None."""
        return None

    def round_over(self) -> RoundOver | None:
        """Why the workers of the round have to stop for the next one, or None while they may go on."""
        return RoundOver("nodes wait to be let in", may_finish=True) if self.num_nodes_waiting() > 0 else None

    def on_lease(self, fence: Callable[[float], None] | None) -> None:  # noqa: B027 - optional, does nothing
        """Call `fence` now and at every renewal with the monotonic time until which workers may live.

        It is called from another thread.
        """

    def last_will(self) -> LastWill | None:
        """The last will that the keeper carries out when the agent has died and all workers are gone."""
        return None

    def report_failure(  # noqa: B027 - optional, does nothing
        self, rank: int, failure: ProcessFailure, others: int = 0, node_rank: int | None = None
    ) -> None:
        """Tell the other nodes that a worker failed, and how many `others` failed on the same node.

        `node_rank` is the rank of the worker's node, if that is another node and this one found out.
        """

    def ask_for_stacks(self, request_id: str, reason: str, occasion: StacksOccasion = StacksOccasion.REQUEST) -> bool:
        """Ask every other node of the round for the stacks of its workers. `reason` is for people.

        False if that is impossible now: another node has asked before, or the round is over.
        """
        del request_id, reason, occasion
        return True

    def stacks_gathered(self) -> None:  # noqa: B027 - optional, does nothing
        """All answers have arrived: another node may ask."""

    def stacks_wanted(self) -> StacksRequest | None:
        """The request of another node, once."""
        return None

    def wait_for_end(self, timeout_s: float) -> bool | None:
        """Tell the other nodes that all workers of this one succeeded, and wait for theirs.

        False means that the round is over for another reason and the workers are needed again. None means that this
        handler leaves the wait to the agent.

        Raises:
            TimeoutError: some nodes are not done in time; the message names them.
        """
        del timeout_s
        return None

    def do_meanwhile(self, meanwhile: Meanwhile) -> None:  # noqa: B027 - optional, does nothing
        """Set the work to do while `wait_for_end` waits: this node still answers requests."""

    def explain(self, reason: str) -> None:  # noqa: B027 - optional, does nothing
        """Set the reason that other nodes read when this node closes the rendezvous with `shutdown`."""

    def announce_leave(self, reason: str) -> None:  # noqa: B027 - optional, does nothing
        """Announce that this node is about to leave and its workers to end. The other workers have time to end, too."""

    def leave(self) -> None:  # noqa: B027 - optional, does nothing
        """Leave the group; the other nodes may go on."""
