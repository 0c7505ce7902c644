"""The configuration of a job: how many nodes and workers, how they meet, and how they are kept running."""

from __future__ import annotations

from holdfast.errors.secret import hiding_secrets
from holdfast.record import like_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from holdfast.processes import LogsSpecs

RENDEZVOUS_TIMEOUT_S = 900
"""How long a static rendezvous waits for its store by default."""


@like_dataclass
class LaunchConfig:
    """The settings of a job. Fields and defaults are those of ``torch.distributed.launcher.api.LaunchConfig``.

    These fields exist only in holdfast:

    Attributes:
        exit_barrier_timeout: how many seconds a finished node waits for the other nodes.
        stop_grace: how many seconds workers that listen for a stop request have to end by themselves.
        store_host: who serves the workers' store at MASTER_ADDR:MASTER_PORT, ``agent`` or ``rank0``.
        restart_window: after running for this many seconds, workers have all of `max_restarts` again; 0 for never.
        restart_policy: ``auto`` or ``always``.
        hang_timeout: after this many seconds without progress, a worker has failed; 0 for no limit.
        warm: whether workers are forked from a process that has done their imports, or the list of those imports.
        strict_exit: whether a worker that crashes after its program ended well has failed.
    """

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __init__(
        self,
        min_nodes: int,
        max_nodes: int,
        nproc_per_node: int,
        logs_specs: LogsSpecs | None = None,
        run_id: str = "",
        role: str = "default_role",
        rdzv_endpoint: str = "",
        rdzv_backend: str = "etcd",
        rdzv_configs: dict[str, Any] | None = None,
        rdzv_timeout: int = -1,
        max_restarts: int = 3,
        monitor_interval: float = 0.1,
        start_method: str = "spawn",
        log_line_prefix_template: str | None = None,
        metrics_cfg: dict[str, str] | None = None,
        local_addr: str | None = None,
        event_log_handler: str = "null",
        numa_options: object = None,
        signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
        virtual_local_rank: bool = False,
        shutdown_timeout: int | None = None,
        exit_barrier_timeout: float = 300,
        stop_grace: float = 30,
        store_host: str = "agent",
        restart_window: float = 0.0,
        restart_policy: str = "auto",
        hang_timeout: float = 0.0,
        warm: bool | Sequence[str] = False,
        strict_exit: bool = False,
    ) -> None:
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.nproc_per_node = nproc_per_node
        self.logs_specs = logs_specs
        self.run_id = run_id
        self.role = role
        self.rdzv_endpoint = rdzv_endpoint
        self.rdzv_backend = rdzv_backend
        self.rdzv_configs = dict(rdzv_configs or {})
        self.rdzv_timeout = rdzv_timeout
        self.max_restarts = max_restarts
        self.monitor_interval = monitor_interval
        self.start_method = start_method
        self.log_line_prefix_template = log_line_prefix_template
        self.metrics_cfg = dict(metrics_cfg or {})
        self.local_addr = local_addr
        self.event_log_handler = event_log_handler
        self.numa_options = numa_options
        self.signals_to_handle = signals_to_handle
        self.duplicate_stdout_filters = duplicate_stdout_filters
        self.duplicate_stderr_filters = duplicate_stderr_filters
        self.virtual_local_rank = virtual_local_rank
        self.shutdown_timeout = shutdown_timeout
        self.exit_barrier_timeout = exit_barrier_timeout
        self.stop_grace = stop_grace
        self.store_host = store_host
        self.restart_window = restart_window
        self.restart_policy = restart_policy
        self.hang_timeout = hang_timeout
        self.warm = warm
        self.strict_exit = strict_exit
        # As in torch, the older argument still wins.
        self.rdzv_configs.setdefault("timeout", RENDEZVOUS_TIMEOUT_S)
        if rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = rdzv_timeout

    def __repr__(self) -> str:
        known = vars(self) | {"rdzv_configs": hiding_secrets(self.rdzv_configs)}
        return f"LaunchConfig({', '.join(f'{name}={value!r}' for name, value in known.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaunchConfig) and vars(self) == vars(other)
