"""The settings of a job: one frozen record, which the launcher passes whole to the agent and the rendezvous.

A new option of ours is a field of `SettingsFields`, an entry of `cli.options`, and a use of it: a module that needs it
reads it from `JobSettings` by name. Nothing in between has to know it.
"""

from __future__ import annotations

from holdfast.record_types import Frozen, Immutable, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from holdfast.processes import LogsSpecs

EXIT_BARRIER_TIMEOUT_S = 300.0
"""How long a node whose workers are done waits for the other nodes by default."""

STOP_GRACE_S = 30.0
"""How long workers that listen for a stop request have to end by themselves, by default."""

RESTART_POLICIES = (AUTO, ALWAYS) = ("auto", "always")
"""Whether a failure that cannot go away by itself is restarted: not with ``auto``, but with ``always``."""

STORE_HOSTS = ("agent", "rank0")
"""Who can serve the workers' store. The first is the default."""


class RestartLimits(Frozen):
    """The settings that a restart decision depends on.

    Attributes:
        max_restarts: the number of restarts.
        window_s: how long workers must have run to get the whole budget back; 0 for never.
        policy: one of `RESTART_POLICIES`.
    """

    max_restarts: int
    window_s: float = 0.0
    policy: str = AUTO


class SettingsFields(Record):
    """The settings of a job. Fields and defaults are those of ``torch.distributed.launcher.api.LaunchConfig``.

    The fields from `exit_barrier_timeout` on exist only in holdfast.

    Attributes:
        min_nodes: with how many nodes the job may start, 1 or more.
        max_nodes: how many nodes it may have.
        nproc_per_node: how many workers this node runs.
        logs_specs: where the workers' output goes; by default `DefaultLogsSpecs()`.
        run_id: the id that the nodes of the job share; "" makes one for a job of a single node.
        role: a name for the workers of this node, in messages and in their environment.
        rdzv_endpoint: where the nodes meet, ``HOST:PORT``; "" for a single node.
        rdzv_backend: how they meet: ``static``, ``c10d``, ``etcd``, or the name of a plug-in.
        rdzv_configs: the backend's own settings, by name.
        rdzv_timeout: the older way to set ``timeout`` in `rdzv_configs`, in seconds; -1 for not at all.
        max_restarts: how often failed workers are started again.
        monitor_interval: how many seconds the agent may let pass until it asks a rendezvous that cannot notify it.
        start_method: for a function, how its process is started: ``spawn``, ``fork`` or ``forkserver``.
        log_line_prefix_template: what stands before the workers' lines on the console. ``${role_name}``, ``${rank}``
            and ``${local_rank}`` are replaced.
        metrics_cfg: the settings of the metrics: see `MetricsConfig`.
        local_addr: the address of this node for the others; by default one that they reach.
        event_log_handler: which handler the job's events go to, beside the run's directory.
        numa_options: accepted, but workers are not bound to NUMA nodes yet.
        signals_to_handle: the signals that the agent passes on to the workers, separated by commas.
        duplicate_stdout_filters: lines of tee'd stdout that contain one of these are also kept in one file.
        duplicate_stderr_filters: the same for stderr.
        virtual_local_rank: whether LOCAL_RANK is 0 in every worker, which sees one GPU, its own.
        shutdown_timeout: how many seconds workers have between the stop signal and SIGKILL; by default 30, or what
            TORCH_ELASTIC_SHUTDOWN_TIMEOUT says.
        exit_barrier_timeout: how many seconds a finished node waits for the other nodes.
        stop_grace: how many seconds workers that listen for a stop request have to end by themselves.
        store_host: who serves the workers' store at MASTER_ADDR:MASTER_PORT, ``agent`` or ``rank0``.
        restart_window: after running for this many seconds, workers have all of `max_restarts` again; 0 for never.
        restart_policy: ``auto`` or ``always``.
        hang_timeout: after this many seconds without progress, a worker has failed; 0 for no limit.
        warm: whether workers are forked from a process that has done their imports, or the list of those imports.
        strict_exit: whether a worker that crashes after its program ended well has failed.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = None  # type: ignore[assignment]  # None becomes an empty dict
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = None  # type: ignore[assignment]  # None becomes an empty dict
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: object = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: float | None = None
    exit_barrier_timeout: float = EXIT_BARRIER_TIMEOUT_S
    stop_grace: float = STOP_GRACE_S
    store_host: str = STORE_HOSTS[0]
    restart_window: float = 0.0
    restart_policy: str = AUTO
    hang_timeout: float = 0.0
    warm: bool | Sequence[str] = False
    strict_exit: bool = False

    def __post_init__(self) -> None:
        # The record has dicts of its own: a caller's dict may change.
        self.__dict__.update(rdzv_configs=dict(self.rdzv_configs or {}), metrics_cfg=dict(self.metrics_cfg or {}))

    def __repr__(self) -> str:
        from holdfast.errors.secret import hiding_secrets

        shown = vars(self) | {"rdzv_configs": hiding_secrets(self.rdzv_configs)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class JobSettings(SettingsFields, Immutable):
    """The settings of a job. They do not change while it runs."""

    @property
    def restart_limits(self) -> RestartLimits:
        return RestartLimits(self.max_restarts, self.restart_window, self.restart_policy)
