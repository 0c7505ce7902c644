"""Build a job from its configuration and run it. All parts are put together here."""

from __future__ import annotations

import os

from holdfast.logger import get_logger
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import SIGNALS_VARIABLE, SignalException, handlers, signals_to_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from holdfast.agent import HealthCheckServer, LocalElasticAgent, RunResult
    from holdfast.launcher.config import LaunchConfig
    from holdfast.rendezvous import RendezvousHandler

SHUTDOWN_TIMEOUT_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"

log = get_logger(__name__)


class elastic_launch:  # noqa: N801 - the name is part of the public API
    """A job as a function: ``elastic_launch(config, train)(*args)`` runs ``train(*args)`` in every worker.

    The call returns the workers' return values by global rank, or raises `ChildFailedError`. If the entry point is a
    string, it is run as a command.
    """

    def __init__(
        self,
        config: LaunchConfig,
        entrypoint: Callable[..., Any] | str | None,
        health_check_server: HealthCheckServer | None = None,
    ) -> None:
        self._config = config
        self._entrypoint = entrypoint
        self._health_check_server = health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)


def launch_agent(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str | None,
    args: Sequence[Any],
    health_check_server: HealthCheckServer | None = None,
) -> dict[int, Any]:
    """Run this node's part of a job, and return its workers' return values by global rank.

    Raises:
        ChildFailedError: workers failed, and no restart is left.
        SignalException: this process was asked to stop, and has stopped its workers.
        InputError: the configuration cannot be run.
    """
    signals_to_handle(config.signals_to_handle)  # validate before anything is changed
    run_id = config.run_id or os.urandom(16).hex()
    previous_signals = os.environ.get(SIGNALS_VARIABLE)
    os.environ[SIGNALS_VARIABLE] = config.signals_to_handle
    handlers.install()
    try:
        return _launch(config, run_id, entrypoint, args, health_check_server)
    finally:
        handlers.uninstall()
        if previous_signals is None:
            os.environ.pop(SIGNALS_VARIABLE, None)
        else:
            os.environ[SIGNALS_VARIABLE] = previous_signals


def _launch(
    config: LaunchConfig,
    run_id: str,
    entrypoint: Callable[..., Any] | str | None,
    args: Sequence[Any],
    health_check_server: HealthCheckServer | None,
) -> dict[int, Any]:
    rdzv_handler = _make_rendezvous(config, run_id, entrypoint)
    leave_for_good = True
    try:
        agent = _make_agent(config, rdzv_handler, entrypoint, args, health_check_server)
        try:
            result = agent.run()
            _raise_if_failed(result, _name(entrypoint, args))
        except SignalException:
            # The signal asks this node to leave, not the job to end.
            leave_for_good = False
            agent.record(agent.get_event_failed())
            raise
        except Exception as error:
            rdzv_handler.explain(f"{os.uname().nodename}: {' '.join(str(error).split())}")
            agent.record(agent.get_event_failed())
            raise
        agent.record(agent.get_event_succeeded())
        return result.return_values
    finally:
        if leave_for_good:
            rdzv_handler.shutdown()
        else:
            rdzv_handler.leave()


def _raise_if_failed(result: RunResult, name: str) -> None:
    if result.is_failed():
        from holdfast.errors import ChildFailedError

        failed = ChildFailedError(name, result.failures)
        failed.victims_elsewhere = result.victims
        failed.reason = result.reason
        raise failed


def _make_rendezvous(
    config: LaunchConfig, run_id: str, entrypoint: Callable[..., Any] | str | None
) -> RendezvousHandler:
    from holdfast.rendezvous.parameters import RendezvousParameters
    from holdfast.rendezvous.registry import BUILT_IN_BACKENDS, rendezvous_handler_registry

    if config.start_method == "fork" and config.rdzv_endpoint and callable(entrypoint):
        _refuse_fork(config.rdzv_backend)
    settings = dict(config.rdzv_configs)
    if config.rdzv_backend in BUILT_IN_BACKENDS:
        settings.setdefault("store_host", config.store_host)
    return rendezvous_handler_registry.create_handler(
        RendezvousParameters(
            backend=config.rdzv_backend,
            endpoint=config.rdzv_endpoint,
            run_id=run_id,
            min_nodes=config.min_nodes,
            max_nodes=config.max_nodes,
            local_addr=config.local_addr,
            **settings,
        )
    )


def _refuse_fork(backend: str) -> None:
    """Raise InputError if a process that uses this backend cannot be forked."""
    from holdfast.rendezvous.backends import BACKENDS

    if backend in BACKENDS and not BACKENDS[backend].may_fork:
        from holdfast.errors.tree import InputError

        raise InputError(
            f"--start-method fork: a process that talks to {backend} cannot be forked; use spawn or forkserver"
        )


def _make_agent(
    config: LaunchConfig,
    rdzv_handler: RendezvousHandler,
    entrypoint: Callable[..., Any] | str | None,
    args: Sequence[Any],
    health_check_server: HealthCheckServer | None,
) -> LocalElasticAgent:
    from holdfast.agent.group import WorkerSpec
    from holdfast.agent.local import LocalElasticAgent
    from holdfast.processes.logs import DefaultLogsSpecs

    if config.metrics_cfg:
        from holdfast.metrics import MetricsConfig, initialize_metrics

        initialize_metrics(MetricsConfig(config.metrics_cfg))
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        rdzv_handler=rdzv_handler,
        entrypoint=entrypoint,
        args=tuple(args),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        local_addr=config.local_addr,
        event_log_handler=config.event_log_handler,
        numa_options=config.numa_options,
        duplicate_stdout_filters=config.duplicate_stdout_filters,
        duplicate_stderr_filters=config.duplicate_stderr_filters,
        virtual_local_rank=config.virtual_local_rank,
        restart_window=config.restart_window,
        restart_policy=config.restart_policy,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        strict_exit=config.strict_exit,
    )
    return LocalElasticAgent(
        spec,
        logs_specs=config.logs_specs or DefaultLogsSpecs(),
        start_method=config.start_method,
        exit_barrier_timeout=config.exit_barrier_timeout,
        log_line_prefix_template=config.log_line_prefix_template,
        shutdown_timeout=_shutdown_timeout_s(config.shutdown_timeout),
        health_check_server=health_check_server,
        stop_grace=config.stop_grace,
        hang_timeout=config.hang_timeout,
        warm=config.warm,
    )


def _shutdown_timeout_s(given: float | None) -> float:
    text = os.environ.get(SHUTDOWN_TIMEOUT_VARIABLE) if given is None else str(given)
    if text is None:
        return SHUTDOWN_TIMEOUT_S
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = -1.0
    if not 0 <= timeout_s < float("inf"):
        from holdfast.errors.tree import InputError

        source = SHUTDOWN_TIMEOUT_VARIABLE if given is None else "--shutdown-timeout"
        raise InputError(f"{source} {text!r}: seconds are needed, 0 or more")
    return timeout_s


def _name(entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> str:
    """The job's name in a failure: its function, or its script rather than the interpreter that runs it."""
    if not isinstance(entrypoint, str):
        return str(getattr(entrypoint, "__qualname__", entrypoint))
    return next((str(argument) for argument in args if not str(argument).startswith("-")), entrypoint)
