"""Build a job's configuration from options. Detectable mistakes are reported here, before anything starts."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace

from holdfast.cli import accelerators
from holdfast.cli.options import GROUPS, OWN_OPTIONS, Unsaid, number, whole_number
from holdfast.cli.worker_command import worker_command
from holdfast.errors.secret import HIDDEN, shown, split_settings
from holdfast.errors.tree import InputError
from holdfast.launcher.config import LaunchConfig
from holdfast.processes.interruption import SIGNALS_VARIABLE, signals_to_handle
from holdfast.processes.logs import find_logs_specs
from holdfast.processes.std import Std
from holdfast.rendezvous.backends import BACKENDS
from holdfast.rendezvous.registry import ENTRY_POINT_GROUPS, rendezvous_handler_registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.processes import LogsSpecs

DEFAULT_MASTER_PORT = 29500
INFINITE = float("inf")
PORT_MAX = (1 << 16) - 1
NO_RUN_ID = ("", "none")
NO_SETTINGS = ("self", "backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr")
"""Names that a backend's settings cannot have: the parameters that all backends share."""

RANK_MAX_DIGITS = 9
"""A longer number is not a local rank."""

PREFIX_TEMPLATE_VARIABLE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
THREADS_VARIABLE = "OMP_NUM_THREADS"


def config_from_args(args: Namespace) -> tuple[LaunchConfig, Callable[..., None] | str, list[str]]:
    """The job that `args` describes: its configuration, what each worker runs, and with which arguments.

    Makes the log directory. Also sets ``OMP_NUM_THREADS`` to 1 in this process's environment if there are several
    workers and it is not set: otherwise each worker would start a thread for every CPU.

    Raises:
        InputError: a value cannot be used. The message begins with the flag and the value.
    """
    args = _with_numbers(args)
    min_nodes, max_nodes = parse_min_max_nnodes(args.nnodes)
    nproc_per_node = determine_local_world_size(args.nproc_per_node)
    _check_numbers(args)
    entrypoint, entrypoint_args = worker_command(args)
    rendezvous = _rendezvous(args, min_nodes, max_nodes)
    _check_names(args, rendezvous["rdzv_backend"])
    config = LaunchConfig(
        **rendezvous,
        nproc_per_node=nproc_per_node,
        logs_specs=_logs_specs(args),
        role=args.role,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        log_line_prefix_template=os.environ.get(PREFIX_TEMPLATE_VARIABLE),
        local_addr=args.local_addr,
        event_log_handler=args.event_log_handler,
        # Without a GPU there is nothing to bind to; the command prints a notice.
        numa_options=args.numa_binding if args.numa_binding and accelerators.gpu_count() else None,
        signals_to_handle=args.signals_to_handle,
        duplicate_stdout_filters=args.duplicate_stdout_filters,
        duplicate_stderr_filters=args.duplicate_stderr_filters,
        virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
        **_own_settings(args),
    )
    if nproc_per_node > 1:
        os.environ.setdefault(THREADS_VARIABLE, "1")
    return config, entrypoint, entrypoint_args


def _with_numbers(args: Namespace) -> Namespace:
    """`args` with numbers where another launcher, which has filled them in itself, has left text."""
    values = dict(vars(args))
    for option in (option for options in GROUPS.values() for option in options):
        text = values.get(option.dest)
        if isinstance(text, str) and option.of_type in (number, whole_number):
            try:
                values[option.dest] = option.of_type(text)
            except ArgumentTypeError as error:
                raise InputError(f"{option.names[-1]} {error}") from None
    return Namespace(**values)


def _own_settings(args: Namespace) -> dict[str, Any]:
    """The settings that only holdfast has, as far as `args` has them: a program may have used torch's parser."""
    own = {option.dest: getattr(args, option.dest) for option in OWN_OPTIONS if hasattr(args, option.dest)}
    imports = own.pop("warm_imports", None)
    return own | {"warm": imports} if imports else own


class NodesError(InputError, RuntimeError):
    """A number of nodes that cannot be used. Also a RuntimeError, as callers of torch's function expect."""


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The minimum and maximum number of nodes: ``2:4`` is 2 and 4, ``2`` is 2 and 2."""
    least, separator, most = str(nnodes).partition(":")
    try:
        min_nodes, max_nodes = int(least), int(most if separator else least)
    except ValueError:
        raise NodesError(f"--nnodes {nnodes!r}: write a number of nodes, or MIN:MAX, such as 2 or 1:4") from None
    if not 0 < min_nodes <= max_nodes:
        raise NodesError(f"--nnodes {nnodes!r}: write 1 or more nodes, and MIN no larger than MAX, such as 2 or 1:4")
    return min_nodes, max_nodes


def determine_local_world_size(nproc_per_node: str) -> int:
    """The number of workers on this machine for a number, ``cpu``, ``gpu``, ``xpu`` or ``auto``."""
    given = f"--nproc-per-node {nproc_per_node!r}"
    try:
        workers = int(nproc_per_node)
    except ValueError:
        workers = _processors(nproc_per_node, given)
    if workers < 1:
        raise InputError(f"{given}: write 1 or more")
    return workers


def _processors(kind: str, given: str) -> int:
    if kind == "cpu":
        return accelerators.cpu_count()
    if kind == "auto":
        return accelerators.accelerator_count() or accelerators.cpu_count()
    if kind not in ("gpu", "xpu"):
        raise InputError(f"{given}: write a number of workers, or one of cpu, gpu, xpu, auto")
    count = accelerators.gpu_count() if kind == "gpu" else accelerators.xpu_count()
    if not count:
        raise InputError(f"{given}: no {kind} found on this machine; write a number of workers, cpu or auto")
    return count


def _rendezvous(args: Namespace, min_nodes: int, max_nodes: int) -> dict[str, Any]:
    """How the nodes meet, as fields of a `LaunchConfig`.

    A single node without other settings meets nobody: it takes any free port, and generates a run id.
    """
    settings: dict[str, Any] = rdzv_settings(args.rdzv_conf)
    if args.standalone:
        if min_nodes > 1:
            raise InputError(f"--nnodes {args.nnodes!r}: --standalone means one node; remove one of the two")
        max_nodes = 1
    elif args.rdzv_backend == "static":
        if not 0 <= args.node_rank < max_nodes:
            raise InputError(f"--node-rank {args.node_rank}: {_ranks_of_nodes(max_nodes)} (--nnodes {args.nnodes})")
        settings["rank"] = args.node_rank
    elif args.rdzv_backend in BACKENDS and not isinstance(args.node_rank, Unsaid):
        settings["rank"] = args.node_rank
    is_alone = args.standalone or (
        args.rdzv_backend == "static" and not args.rdzv_endpoint and not args.master_port and max_nodes == 1
    )
    if is_alone:
        return {
            "min_nodes": 1,
            "max_nodes": 1,
            "rdzv_backend": "static",
            "rdzv_endpoint": "",
            "rdzv_configs": {**settings, "rank": 0},
            "run_id": os.urandom(16).hex() if args.rdzv_id in NO_RUN_ID else args.rdzv_id,
        }
    if not args.rdzv_id and max_nodes > 1 and args.rdzv_backend in BACKENDS:
        # An unset variable, as in --rdzv-id "$JOB_ID". Each node would make an id of its own, and meet nobody.
        raise InputError("--rdzv-id '': the id is empty; give all nodes the same id")
    return {
        "min_nodes": min_nodes,
        "max_nodes": max_nodes,
        "rdzv_backend": args.rdzv_backend,
        "rdzv_endpoint": get_rdzv_endpoint(args),
        "rdzv_configs": settings,
        "run_id": args.rdzv_id,
    }


def _ranks_of_nodes(count: int) -> str:
    return "a single node has rank 0" if count == 1 else f"{count} nodes have ranks 0 to {count - 1}"


def get_rdzv_endpoint(args: Namespace) -> str:
    """Where the nodes meet: the endpoint, or with the backend ``static`` the master's address and port."""
    if args.rdzv_endpoint or args.rdzv_backend != "static":
        return str(args.rdzv_endpoint)
    if args.master_port == 0:
        raise InputError("--master-port 0: several nodes need the same port; write one above 0")
    if not args.master_addr:
        raise InputError("--master-addr '': write the address of node 0")
    is_bare_ipv6 = ":" in args.master_addr and not args.master_addr.startswith("[")
    host = f"[{args.master_addr}]" if is_bare_ipv6 else args.master_addr
    return f"{host}:{args.master_port or DEFAULT_MASTER_PORT}"


def rdzv_settings(text: str) -> dict[str, str]:
    """Parse ``a=1,b=2`` with `split_settings`."""
    items = split_settings(text)
    for place, (key, _, value) in enumerate(items, start=1):
        if not key or not value:
            which = f" (see item {place})" if shown(text) == HIDDEN else ""
            raise InputError(
                f"--rdzv-conf {shown(text)}: write KEY=VALUE pairs separated by commas, such as join_timeout=60{which}"
            )
        if key in NO_SETTINGS:
            raise InputError(f"--rdzv-conf {shown(text)}: {key} is not a setting of a backend; use the option for it")
    return {key: value for key, _, value in items}


def _check_numbers(args: Namespace) -> None:
    if args.max_restarts < 0:
        raise InputError(f"--max-restarts {args.max_restarts}: write a number of restarts, 0 or more")
    if not 0 < args.monitor_interval < INFINITE:
        raise InputError(f"--monitor-interval {args.monitor_interval:g}: write a number of seconds above 0")
    if args.shutdown_timeout is not None and args.shutdown_timeout < 0:
        raise InputError(f"--shutdown-timeout {args.shutdown_timeout}: write a number of seconds, 0 or more")
    for option in OWN_OPTIONS:
        seconds = getattr(args, option.dest, 0.0)
        if option.metavar == "SECONDS" and not 0 <= seconds < INFINITE:
            raise InputError(f"{option.names[-1]} {seconds:g}: write a number of seconds, 0 or more")
    if args.master_port is not None and not 0 <= args.master_port <= PORT_MAX:
        raise InputError(f"--master-port {args.master_port}: write a port from 1 to {PORT_MAX}")


def _check_names(args: Namespace, backend: str) -> None:
    try:
        signals_to_handle(args.signals_to_handle)
    except InputError as error:
        reason = str(error).removeprefix(f"{SIGNALS_VARIABLE}={args.signals_to_handle!r}: ")
        raise InputError(f"--signals-to-handle {args.signals_to_handle!r}: {reason}") from None
    if args.event_log_handler != "null":
        from holdfast.events import event_handler

        event_handler(args.event_log_handler)
    _check_backend(backend)


def _check_backend(backend: str) -> None:
    known = rendezvous_handler_registry.names()
    if backend in known:
        return
    from importlib.metadata import entry_points

    installed = {entry.name for group in ENTRY_POINT_GROUPS for entry in entry_points(group=group)}
    if backend not in installed:
        there = ", ".join(sorted({*known, *installed}))
        raise InputError(f"--rdzv-backend {backend!r}: unknown backend; choose from {there}")


def _logs_specs(args: Namespace) -> LogsSpecs:
    specs = find_logs_specs(args.logs_specs)
    streams = {"redirects": _streams("redirects", args.redirects), "tee": _streams("tee", args.tee)}
    ranks = _local_ranks(args.local_ranks_filter)
    try:
        made = specs(log_dir=args.log_dir, local_ranks_filter=ranks, **streams)
    except InputError as error:
        if args.log_dir:
            error.args = (f"--log-dir {args.log_dir!r}: {error}",)
        raise
    if args.log_dir and os.path.isdir(args.log_dir) and not os.access(args.log_dir, os.W_OK | os.X_OK):
        raise InputError(
            f"--log-dir {args.log_dir!r}: not writable; choose another directory, or {os.devnull} for no logs"
        )
    return made


def _streams(name: str, text: str) -> Std | dict[int, Std]:
    try:
        return Std.from_str(text)
    except ValueError as error:
        raise InputError(f"--{name} {error}") from None


def _local_ranks(text: str) -> set[int] | None:
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= RANK_MAX_DIGITS for part in parts):
        raise InputError(f"--local-ranks-filter {text!r}: write local ranks separated by commas, such as 0,1,2")
    return set(map(int, parts))
