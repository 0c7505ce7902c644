"""The entry point: starts a function or a command in one process for each rank."""

from __future__ import annotations

from holdfast.processes.context import SHUTDOWN_TIMEOUT_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from holdfast.processes.context import PContext
    from holdfast.processes.logs import LogsSpecs


def start_processes(
    name: str,
    entrypoint: Callable[..., Any] | str,
    args: Mapping[int, tuple[Any, ...]],
    envs: Mapping[int, Mapping[str, str]],
    logs_specs: LogsSpecs,
    log_line_prefixes: dict[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: object = None,
    duplicate_stdout_filters: list[str] | None = None,
    duplicate_stderr_filters: list[str] | None = None,
    shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    before_start: Callable[[PContext], None] | None = None,
) -> PContext:
    """Start a process for each rank in `args` that runs `entrypoint`: a function, or a command's name.

    Args:
        name: the set's name in messages, prefixes and process names.
        entrypoint: a function to call, or a command to run, with the rank's `args`.
        args: the arguments by rank, for the ranks 0 to N-1.
        envs: by rank, additions to this process's environment.
        logs_specs: where output goes.
        log_line_prefixes: by rank, the prefix of its lines on the console.
        start_method: for a function, how its process is started: spawn, fork or forkserver.
        numa_options: accepted, but workers are not bound to NUMA nodes yet; a notice says so.
        duplicate_stdout_filters: lines of tee'd stdout that contain one of these are also kept in one file.
        duplicate_stderr_filters: the same for stderr.
        shutdown_timeout: seconds between the stop signal and SIGKILL, if a process failed and its siblings are
            stopped, and by default in `close`.
        before_start: called with the set before any of its processes exists.

    Returns:
        The running set. If one process cannot be started, none is, and its error is raised.
    """
    context: PContext
    if isinstance(entrypoint, str):
        from holdfast.processes.command import SubprocessContext

        context = SubprocessContext(
            name,
            entrypoint,
            args,
            envs,
            logs_specs,
            log_line_prefixes,
            numa_options,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
            shutdown_timeout,
        )
    else:
        from holdfast.processes.function import MultiprocessContext

        context = MultiprocessContext(
            name,
            entrypoint,
            args,
            envs,
            start_method,
            logs_specs,
            log_line_prefixes,
            numa_options,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
            shutdown_timeout,
        )
    if before_start is not None:
        before_start(context)
    context.start()
    return context
