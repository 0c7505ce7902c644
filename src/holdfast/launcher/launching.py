"""Build a job from its configuration and run it. All parts are put together here."""

from __future__ import annotations

import os
import sys

from holdfast.errors.tree import InputError
from holdfast.logger import get_logger
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S
from holdfast.processes.interruption import SignalException, handlers, signals_to_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Generic, ParamSpec, TypeVar, overload

    from holdfast.agent import HealthCheckServer, LocalElasticAgent, RunResult
    from holdfast.agent.group import WorkerSpec
    from holdfast.launcher.config import LaunchConfig
    from holdfast.rendezvous import RendezvousHandler
    from holdfast.settings import JobSettings

    P = ParamSpec("P")
    R = TypeVar("R")

    class _Job(Generic[P, R]):
        """What a type checker knows of a job: its function's arguments, and what a worker returns."""

else:
    P = R = None

    class _Job:
        def __class_getitem__(cls, _: object) -> type:
            return object


SHUTDOWN_TIMEOUT_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"

log = get_logger(__name__)


class NoMainGuardError(InputError):
    """A worker that imports the main program has come upon the launch of the job that it belongs to."""


class elastic_launch(_Job[P, R]):  # noqa: N801 - the name is part of the public API
    """A job as a function: ``elastic_launch(config, train)(*args)`` runs ``train(*args)`` in every worker.

    The call takes keyword arguments, too. It returns the workers' return values by global rank, or raises
    `ChildFailedError`. If the entry point is a string, it is run as a command, and the arguments are its words.
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: elastic_launch[..., None],
            config: LaunchConfig,
            entrypoint: str,
            health_check_server: HealthCheckServer | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self,
            config: LaunchConfig,
            entrypoint: Callable[P, R],
            health_check_server: HealthCheckServer | None = None,
        ) -> None: ...

    def __init__(
        self,
        config: LaunchConfig,
        entrypoint: Callable[P, R] | str | None,
        health_check_server: HealthCheckServer | None = None,
    ) -> None:
        self._config = config
        self._entrypoint = entrypoint
        self._health_check_server = health_check_server

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> dict[int, R]:
        entrypoint: Callable[..., Any] | str | None = self._entrypoint
        if kwargs:
            entrypoint = _with_keywords(entrypoint, kwargs)
        return launch_agent(self._config, entrypoint, list(args), self._health_check_server)


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
    _refuse_launch_in_import()
    _check_entrypoint(entrypoint)
    config.check()
    settings = job_settings(config)
    handlers.install(signals_to_handle(settings.signals_to_handle))
    try:
        return _launch(settings, entrypoint, args, health_check_server)
    finally:
        handlers.uninstall()


def job_settings(config: LaunchConfig) -> JobSettings:
    """The settings of the job that `config` describes, with everything filled in that a configuration may leave open.

    Raises:
        InputError: the shutdown timeout cannot be used.
    """
    return config.settings().replace(
        run_id=config.run_id or os.urandom(16).hex(),
        shutdown_timeout=_shutdown_timeout_s(config.shutdown_timeout),
    )


def _refuse_launch_in_import() -> None:
    """Raise `NoMainGuardError` in a process that multiprocessing starts and that still imports its main program."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise NoMainGuardError(
            "every worker imports this file, and would launch the job again; "
            'put the launch under `if __name__ == "__main__":`'
        )


def _check_entrypoint(entrypoint: object) -> None:
    """Raise InputError for what is neither a function nor a program."""
    if not callable(entrypoint) and not (isinstance(entrypoint, str) and entrypoint):
        raise InputError(f"the entry point {entrypoint!r} must be a function, or the name of a program")


def _with_keywords(entrypoint: object, keywords: dict[str, Any]) -> Callable[..., Any]:
    """`entrypoint` with these arguments, under its own name."""
    from functools import partial, update_wrapper

    _check_entrypoint(entrypoint)
    if not callable(entrypoint):
        raise InputError(f"the program {entrypoint!r} has no argument {next(iter(keywords))!r}; write it as a word")
    return update_wrapper(partial(entrypoint, **keywords), entrypoint, updated=())


def _launch(
    settings: JobSettings,
    entrypoint: Callable[..., Any] | str | None,
    args: Sequence[Any],
    health_check_server: HealthCheckServer | None,
) -> dict[int, Any]:
    from holdfast.agent.group import WorkerSpec

    rdzv_handler = _make_rendezvous(settings, entrypoint)
    leave_for_good = True
    try:
        agent = _make_agent(settings, WorkerSpec.of(settings, rdzv_handler, entrypoint, args), health_check_server)
        with agent.recording():
            return _run(agent, rdzv_handler, _name(entrypoint, args))
    except SignalException:
        leave_for_good = False  # the signal asks this node to leave, not the job to end
        raise
    finally:
        if leave_for_good:
            rdzv_handler.shutdown()
        else:
            rdzv_handler.leave()


def _run(agent: LocalElasticAgent, rdzv_handler: RendezvousHandler, name: str) -> dict[int, Any]:
    """Run the agent, and record how that ended."""
    try:
        result = agent.run()
        _raise_if_failed(result, name)
    except SignalException:
        agent.record(agent.get_event_failed())
        raise
    except Exception as error:
        rdzv_handler.explain(f"{os.uname().nodename}: {' '.join(str(error).split())}")
        agent.record(agent.get_event_failed())
        raise
    agent.record(agent.get_event_succeeded())
    return result.return_values


def _raise_if_failed(result: RunResult, name: str) -> None:
    if result.is_failed():
        from holdfast.errors import ChildFailedError

        failed = ChildFailedError(name, result.failures)
        failed.victims_elsewhere = result.victims
        failed.reason = result.reason
        raise failed


def _make_rendezvous(settings: JobSettings, entrypoint: Callable[..., Any] | str | None) -> RendezvousHandler:
    from holdfast.rendezvous import registry
    from holdfast.rendezvous.handler import RendezvousHandler
    from holdfast.rendezvous.parameters import RendezvousParameters

    if settings.start_method == "fork" and settings.rdzv_endpoint and callable(entrypoint):
        _refuse_fork(settings.rdzv_backend)
    configs = dict(settings.rdzv_configs)
    if settings.rdzv_backend in registry.BUILT_IN_BACKENDS:
        configs.setdefault("store_host", settings.store_host)
    handler: object = registry.get_rendezvous_handler(  # looked up now: a program may have replaced it
        RendezvousParameters(
            backend=settings.rdzv_backend,
            endpoint=settings.rdzv_endpoint,
            run_id=settings.run_id,
            min_nodes=settings.min_nodes,
            max_nodes=settings.max_nodes,
            local_addr=settings.local_addr,
            **configs,
        )
    )
    if isinstance(handler, RendezvousHandler):
        return handler
    from holdfast.rendezvous.foreign import ForeignHandler

    return ForeignHandler(handler)


def _refuse_fork(backend: str) -> None:
    """Raise InputError if a process that uses this backend cannot be forked."""
    from holdfast.rendezvous.backends import BACKENDS

    if backend in BACKENDS and not BACKENDS[backend].may_fork:
        raise InputError(
            f"--start-method fork: a process that talks to {backend} cannot be forked; use spawn or forkserver"
        )


def _make_agent(
    settings: JobSettings, spec: WorkerSpec, health_check_server: HealthCheckServer | None
) -> LocalElasticAgent:
    from holdfast.agent.local import LocalElasticAgent
    from holdfast.processes.logs import DefaultLogsSpecs

    if settings.metrics_cfg:
        from holdfast.metrics import MetricsConfig, initialize_metrics

        initialize_metrics(MetricsConfig(settings.metrics_cfg))
    assert settings.shutdown_timeout is not None  # `job_settings` has chosen one
    return LocalElasticAgent(
        spec,
        logs_specs=settings.logs_specs or DefaultLogsSpecs(),
        start_method=settings.start_method,
        exit_barrier_timeout=settings.exit_barrier_timeout,
        log_line_prefix_template=settings.log_line_prefix_template,
        shutdown_timeout=settings.shutdown_timeout,
        health_check_server=health_check_server,
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
        source = SHUTDOWN_TIMEOUT_VARIABLE if given is None else "--shutdown-timeout"
        raise InputError(f"{source} {text!r}: write a number of seconds, 0 or more")
    return timeout_s


def _name(entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> str:
    """The job's name in a failure: its function, or its script rather than the interpreter that runs it."""
    if not isinstance(entrypoint, str):
        return str(getattr(entrypoint, "__qualname__", entrypoint))
    return next((str(argument) for argument in args if not str(argument).startswith("-")), entrypoint)
