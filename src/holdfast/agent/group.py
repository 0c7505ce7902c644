"""The workers of an agent: their specification, the workers, their group, and the result."""

from __future__ import annotations

from holdfast.agent.state import WorkerState
from holdfast.record_types import like_dataclass
from holdfast.settings import JobSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from holdfast.errors import ProcessFailure
    from holdfast.rendezvous import RendezvousHandler
    from holdfast.rendezvous.hosting import Hosting


PROGRAM_MAX_CHARACTERS = 200
"""How much of a program's name other nodes get: its end."""

DIGEST_CHARACTERS = 12
"""How much of a digest other nodes get."""

SHARED = (
    *("role", "max_restarts", "monitor_interval", "local_addr", "event_log_handler", "numa_options"),
    *("duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank"),
    *("restart_window", "restart_policy", "min_nodes", "max_nodes", "strict_exit"),
)
"""The fields that a `WorkerSpec` shares with `JobSettings`. A new setting is a field of `JobSettings` alone."""


@like_dataclass
class WorkerSpec:
    """What to run, how many workers on this node, how nodes meet, and how often to restart.

    A `master_addr` or `master_port` given here overrides that of the rendezvous. `fn` is the old name of `entrypoint`.
    `min_nodes` and `max_nodes` are the job's number of nodes, for its report; 0 means unknown. With `strict_exit`, a
    worker that crashes after its program ended well has failed. `settings` has the job's other settings.
    """

    def __init__(
        self,
        role: str,
        local_world_size: int,
        rdzv_handler: RendezvousHandler,
        fn: Callable[..., Any] | None = None,
        entrypoint: Callable[..., Any] | str | None = None,
        args: tuple[Any, ...] = (),
        max_restarts: int = 3,
        monitor_interval: float = 0.1,
        master_port: int | None = None,
        master_addr: str | None = None,
        local_addr: str | None = None,
        event_log_handler: str = "null",
        numa_options: object = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
        virtual_local_rank: bool = False,
        restart_window: float = 0.0,
        restart_policy: str = "auto",
        min_nodes: int = 0,
        max_nodes: int = 0,
        strict_exit: bool = False,
        settings: JobSettings | None = None,
    ) -> None:
        if fn is not None:
            import warnings

            warnings.warn("WorkerSpec(fn=...) is now WorkerSpec(entrypoint=...)", DeprecationWarning, stacklevel=2)
            entrypoint = fn
        for problem, wrong in (
            (f"{local_world_size} workers on a node; must be at least 1", local_world_size < 1),
            (f"a monitor interval of {monitor_interval} s; must be more than 0", not monitor_interval > 0),
            (f"{max_restarts} restarts; must be 0 or more", max_restarts < 0),
            ("neither a function nor a command to run", not entrypoint),
        ):
            if wrong:
                from holdfast.errors.tree import InputError

                raise InputError(f"the specification of role {role!r} has {problem}")
        self.role = role
        self.local_world_size = local_world_size
        self.rdzv_handler = rdzv_handler
        self.fn = fn
        self.entrypoint = entrypoint
        self.args = args
        self.max_restarts = max_restarts
        self.monitor_interval = monitor_interval
        self.master_port = master_port
        self.master_addr = master_addr
        self.local_addr = local_addr
        self.event_log_handler = event_log_handler
        self.numa_options = numa_options
        self.duplicate_stdout_filters = duplicate_stdout_filters
        self.duplicate_stderr_filters = duplicate_stderr_filters
        self.virtual_local_rank = virtual_local_rank
        self.restart_window = restart_window
        self.restart_policy = restart_policy
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.strict_exit = strict_exit
        self.settings = settings

    @classmethod
    def of(
        cls,
        settings: JobSettings,
        rdzv_handler: RendezvousHandler,
        entrypoint: Callable[..., Any] | str | None,
        args: Sequence[Any] = (),
    ) -> WorkerSpec:
        """The specification of this node's workers in a job with these settings."""
        return cls(
            local_world_size=settings.nproc_per_node,
            rdzv_handler=rdzv_handler,
            entrypoint=entrypoint,
            args=tuple(args),
            settings=settings,
            **{name: getattr(settings, name) for name in SHARED},
        )

    def get_settings(self) -> JobSettings:
        """The settings of the job. The values of this specification win over those in `settings`."""
        own = {name: getattr(self, name) for name in SHARED}
        if self.settings is None:
            return JobSettings(nproc_per_node=self.local_world_size, **own)
        return self.settings.replace(nproc_per_node=self.local_world_size, **own)

    def get_entrypoint_name(self) -> str:
        """The name of the command or function."""
        if isinstance(self.entrypoint, str):
            return self.entrypoint.rpartition("/")[2]
        return str(getattr(self.entrypoint, "__qualname__", self.entrypoint))

    def get_program(self) -> tuple[str, str]:
        """The program, for nodes to compare: its name and a digest of its arguments.

        The name is that of the script, module, command or function. A function's digest is "".
        """
        if not isinstance(self.entrypoint, str):
            return self.get_entrypoint_name(), ""
        from hashlib import sha256

        name, arguments = self.get_entrypoint_name(), [str(argument) for argument in self.args]
        if arguments[:1] == ["-u"]:  # the command line starts Python with -u
            is_module = arguments[1:2] == ["-m"]
            script, arguments = arguments[1 + is_module], arguments[2 + is_module :]
            name = f"-m {script}" if is_module else script.rstrip("/").rpartition("/")[2]
        name = name[-PROGRAM_MAX_CHARACTERS:]
        return name, sha256("\0".join(arguments).encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]

    __hash__ = None  # type: ignore[assignment]  # the fields can change

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"WorkerSpec({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Worker:
    """One process of a group, with its ranks. `id` identifies the process; None before it has started.

    Ranks change from generation to generation, so each generation has new workers.
    """

    __slots__ = ("global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size")

    def __init__(
        self,
        local_rank: int,
        global_rank: int = -1,
        role_rank: int = -1,
        world_size: int = -1,
        role_world_size: int = -1,
    ) -> None:
        self.id: Any = None
        self.local_rank = local_rank
        self.global_rank = global_rank
        self.role_rank = role_rank
        self.world_size = world_size
        self.role_world_size = role_world_size

    def __repr__(self) -> str:
        return f"Worker({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class WorkerGroup:
    """The workers of one node, which start, restart and stop together.

    `nodes` has the role and the number of workers of every node in the generation, if the rendezvous provides it.
    """

    __slots__ = (
        "coordinator_port",
        "generation",
        "group_rank",
        "group_world_size",
        "hosting",
        "job",
        "master_addr",
        "master_port",
        "max_restarts",
        "nodes",
        "spec",
        "state",
        "store",
        "workers",
    )

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workers = [Worker(local_rank) for local_rank in range(spec.local_world_size)]
        self.store: Any = None
        self.generation: int | None = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.nodes: Sequence[tuple[str, int]] | None = None
        self.job = ""
        self.max_restarts = spec.max_restarts
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.coordinator_port: int | None = None
        self.hosting: Hosting | None = None
        self.state = WorkerState.INIT


@like_dataclass
class RunResult:
    """The result of a group: its state, and its workers' return values or failures by global rank.

    `terminated` has the exit codes of workers that were stopped because another failed: neither successes nor failures.
    `victims` is the number of workers on other nodes that failed because of these. `reason` is why there is no restart.
    """

    __hash__ = None  # type: ignore[assignment]  # the fields can change

    def __init__(
        self,
        state: WorkerState,
        return_values: dict[int, Any] | None = None,
        failures: dict[int, ProcessFailure] | None = None,
        terminated: dict[int, int] | None = None,
        victims: int = 0,
        reason: str = "",
    ) -> None:
        self.state = state
        self.return_values = return_values or {}
        self.failures = failures or {}
        self.terminated = terminated or {}
        self.victims = victims
        self.reason = reason

    def is_failed(self) -> bool:
        """Whether the job has failed, and no restart is left."""
        return self.state is WorkerState.FAILED

    def __repr__(self) -> str:
        return f"RunResult({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunResult) and vars(self) == vars(other)
