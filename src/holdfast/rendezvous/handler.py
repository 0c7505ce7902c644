"""The interface between an agent and whatever lets agents meet."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from select import poll
    from typing import Any, Protocol

    from holdfast.errors import ProcessFailure
    from holdfast.processes.launch import LastWill
    from holdfast.rendezvous.hosting import Hosting
    from holdfast.rendezvous.records import StacksRequest, Verdict

    class Meanwhile(Protocol):
        """What an agent does while it waits for other nodes."""

        def register(self, poll: poll) -> None:
            """Add the descriptors that it waits for."""

        def wait_s(self) -> float | None:
            """How long it is until there is something to do by itself."""

        def look(self) -> object:
            """Do what there is to do."""


class RendezvousStoreInfo:
    """Where the workers of a round find each other: MASTER_ADDR and MASTER_PORT."""

    MASTER_ADDR_KEY = "MASTER_ADDR"
    MASTER_PORT_KEY = "MASTER_PORT"

    __slots__ = ("master_addr", "master_port")

    def __init__(self, master_addr: str, master_port: int) -> None:
        self.master_addr = master_addr
        self.master_port = master_port

    def __repr__(self) -> str:
        return f"RendezvousStoreInfo(master_addr={self.master_addr!r}, master_port={self.master_port!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RendezvousStoreInfo):
            return NotImplemented
        return (self.master_addr, self.master_port) == (other.master_addr, other.master_port)

    def __hash__(self) -> int:
        return hash((self.master_addr, self.master_port))


class RendezvousInfo:
    """What a node knows after a round: its rank among the nodes, how many there are, and what they share.

    Where the nodes agree on more than that, it is here, too: how often the job was restarted, the number of the round,
    the role and the number of workers of every node, by rank, and a port for JAX's coordinator beside the master's.
    `hosting` is what this node holds for all workers if it has rank 0; the handler lets go of it. `after` is what the
    last round failed of, if it did. `job` is a random id that all nodes of the job share in all of its rounds, "" where
    the nodes share none. `max_restarts` is the job's budget, None where each node has its own. `lost` are the machines
    whose loss ended the last round, if that is why it ended.
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
    """Why a round is over for workers that are well. `may_finish` if there is time for them to end by themselves."""

    __slots__ = ("may_finish", "reason")

    def __init__(self, reason: str, *, may_finish: bool = False) -> None:
        self.reason = reason
        self.may_finish = may_finish

    def __repr__(self) -> str:
        return f"RoundOver({self.reason!r}, may_finish={self.may_finish})"


class RendezvousHandler(ABC):
    """Lets an agent meet the agents of other nodes, round after round.

    Subclass it to bring a way of meeting of your own. What is not abstract has a default that suits a handler
    written for torch.
    """

    needs_polling = True
    """Whether only `num_nodes_waiting` tells of newcomers, so that the agent has to ask now and then."""

    counts_restarts = False
    """Whether the nodes count restarts together, so that the budget is the job's and not each node's."""

    @abstractmethod
    def get_backend(self) -> str:
        """The name of the backend."""

    @property
    def use_agent_store(self) -> bool:
        """Whether the agent serves the workers' store at MASTER_ADDR:MASTER_PORT; if not, rank 0 does."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the others; returns when the round is complete.

        Raises:
            RendezvousClosedError: the job has ended.
            RendezvousTimeoutError: too few nodes came.
            RendezvousConnectionError: the meeting place cannot be reached.
            RendezvousStateError: the meeting place holds something else.
            RendezvousGracefulExitError: this node is not needed.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether nobody can meet any more."""

    @abstractmethod
    def set_closed(self) -> None:
        """Close it for good."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many nodes wait to be let in."""

    @abstractmethod
    def get_run_id(self) -> str:
        """The id that the nodes of a job have in common."""

    @abstractmethod
    def shutdown(self) -> bool:
        """Leave and free all resources; False if that failed."""

    # What a handler may know beyond torch's interface. These have defaults that suit one that does not.

    def bring(  # noqa: B027 - by default nothing
        self,
        role: str,
        local_world_size: int,
        max_restarts: int,
        restart_window_s: float = 0.0,
        restart_policy: str = "auto",
    ) -> None:
        """What this node brings to the rounds that it takes part in."""

    def identify(self, program: str, arguments: str) -> None:  # noqa: B027 - by default nothing
        """What the workers of this node run, to be compared with what others run: the program's name, and a digest of
        its arguments, "" if they are not known.
        """

    def fileno(self) -> int | None:
        """A descriptor that is readable when `round_over` may have something to say, or None."""
        return None

    def round_over(self) -> RoundOver | None:
        """Why the workers of the round have to stop for the next one, or None while they may go on."""
        return RoundOver("nodes wait to be let in", may_finish=True) if self.num_nodes_waiting() > 0 else None

    def on_lease(self, fence: Callable[[float], None] | None) -> None:  # noqa: B027 - by default nothing
        """Call `fence` now and at every renewal with the monotonic time until which workers may live. It is called
        from another thread.
        """

    def last_will(self) -> LastWill | None:
        """What the keeper of this node's workers is to become when the agent has died and nothing is left of them."""
        return None

    def report_failure(  # noqa: B027 - by default nothing
        self, rank: int, failure: ProcessFailure, others: int = 0, node_rank: int | None = None
    ) -> None:
        """Tell the other nodes that a worker of this one failed, and how many `others` here; or that one of the node
        of another rank did, if this one found out.
        """

    def ask_for_stacks(self, request_id: str, reason: str) -> bool:
        """Ask every other node of the round to say where its workers are. False if that cannot be now: another node
        has asked before, or the round is over.
        """
        del request_id, reason
        return True

    def stacks_gathered(self) -> None:  # noqa: B027 - by default nothing
        """The answers are here: another node may ask."""

    def stacks_wanted(self) -> StacksRequest | None:
        """A request of another node's, once."""
        return None

    def wait_for_end(self, timeout_s: float) -> bool | None:
        """Tell the other nodes that all workers of this one succeeded, and wait for theirs.

        False means that the round is over for another reason and the workers are needed again; None that this handler
        leaves it to the agent.

        Raises:
            TimeoutError: the others are not done in time; it names them.
        """
        del timeout_s
        return None

    def do_meanwhile(self, meanwhile: Meanwhile) -> None:  # noqa: B027 - by default nothing
        """What to do while `wait_for_end` waits: this node still answers requests."""

    def explain(self, reason: str) -> None:  # noqa: B027 - by default nothing
        """Why this node is about to close the rendezvous with `shutdown`, for the others to read."""

    def announce_leave(self, reason: str) -> None:  # noqa: B027 - by default nothing
        """This node will go, and its workers are about to end; those of the others may end in peace, too."""

    def leave(self) -> None:  # noqa: B027 - by default nothing
        """This node goes; the others may go on."""
