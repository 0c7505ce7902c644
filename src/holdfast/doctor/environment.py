"""Environment variables that affect jobs, and that somebody may have forgotten."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from holdfast.doctor.finding import Finding, Topic, counted
from holdfast.doctor.network import interfaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.doctor.context import Context

OF_A_WORKER = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
"""The variables that a launcher sets for a worker."""

SLOW = {
    "CUDA_LAUNCH_BLOCKING": "the host waits for every kernel",
    "TORCH_DISTRIBUTED_DEBUG": "collectives are checked against each other",
    "NCCL_P2P_DISABLE": "GPUs of a machine do not talk to each other directly",
    "NCCL_SHM_DISABLE": "ranks of a machine talk over the network",
    "NCCL_IB_DISABLE": "InfiniBand is not used",
}
"""The variables that make a job slow if they are set, and why."""

OFF = ("", "0", "OFF", "INFO")

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")

THREADS_MAX_DIGITS = 9
"""A longer number is not a number of threads."""

_topic = Topic("environment")


class Facts(NamedTuple):
    environ: Mapping[str, str]
    interfaces: tuple[str, ...]
    """The names of the interfaces that are up."""

    missing_paths: tuple[str, ...]
    """The entries of PYTHONPATH that do not exist."""

    workers: int
    cpus: int


def check(context: Context) -> list[Finding]:
    paths = [path for path in context.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    names = tuple(dict.fromkeys(one.name for one in interfaces()))
    missing = tuple(path for path in paths if not os.path.exists(path))
    return judge(Facts(context.environ, names, missing, context.workers, context.accelerators.cpus))


def judge(facts: Facts) -> list[Finding]:
    found = [
        *_judge_options(facts),
        *_judge_interfaces(facts),
        *_judge_threads(facts),
        *_judge_slow(facts),
        *_judge_paths(facts),
        *_judge_proxies(facts),
    ]
    return found or [_topic.ok("variables", "no variable that affects a job is set")]


def _judge_options(facts: Facts) -> list[Finding]:
    """Findings about options and worker variables that are set. Values are not shown: settings hold secrets."""
    found = []
    if options := sorted(name for name in facts.environ if name.startswith("PET_")):
        found.append(
            _topic.note(
                "options",
                f"defaults of holdfast run's options are set: {_listed(options)}",
                "unset those that you do not want",
            )
        )
    left = [name for name in OF_A_WORKER if name in facts.environ]
    left += sorted(name for name in facts.environ if name.startswith(("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART")))
    if left:
        found.append(
            _topic.note(
                "worker",
                f"variables of a worker are set: {_listed(left)}",
                "holdfast gives workers their own; a program started without a launcher would wait for workers that "
                "never come: unset them, unless this shell belongs to a worker",
            )
        )
    if tuned := sorted(
        f"{name}={facts.environ[name]}" for name in facts.environ if name.startswith(("NCCL_", "GLOO_"))
    ):
        found.append(_topic.note("libraries", f"settings of NCCL and gloo: {_listed(tuned)}"))
    return found


def _judge_interfaces(facts: Facts) -> list[Finding]:
    found = []
    for name, matches in (("GLOO_SOCKET_IFNAME", _is_named), ("NCCL_SOCKET_IFNAME", _is_chosen)):
        value = facts.environ.get(name, "")
        if value and not matches(value, facts.interfaces):
            up = ", ".join(facts.interfaces) or "none"
            found.append(
                _topic.problem(
                    "interface",
                    f"{name}={value}: no such interface is up; there are: {up}",
                    f"correct {name}, or unset it",
                )
            )
    return found


def _is_named(value: str, names: Sequence[str]) -> bool:
    """Whether gloo accepts the value: names separated by commas, all of which must exist."""
    return all(part.strip() in names for part in value.split(","))


def _is_chosen(value: str, names: Sequence[str]) -> bool:
    """Whether NCCL accepts the value: prefixes of names; ``=`` before them means whole names, ``^`` all others."""
    is_other, rest = value.startswith("^"), value.removeprefix("^")
    is_exact, rest = rest.startswith("="), rest.removeprefix("=")
    parts = [part.partition(":")[0].strip() for part in rest.split(",") if part.strip()]
    matched = [name for name in names if any(name == part if is_exact else name.startswith(part) for part in parts)]
    return len(matched) < len(names) if is_other else bool(matched)


def _judge_threads(facts: Facts) -> list[Finding]:
    value = facts.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    threads = int(value) * facts.workers if value.isdecimal() and len(value) <= THREADS_MAX_DIGITS else 0
    if threads <= facts.cpus:
        return []
    return [
        _topic.warning(
            "threads",
            f"OMP_NUM_THREADS={value}: {counted(facts.workers, 'worker')} would run {threads} threads on "
            f"{counted(facts.cpus, 'CPU')}",
            f"unset it (holdfast then gives each of several workers one), or set it to "
            f"{max(1, facts.cpus // facts.workers)}",
        )
    ]


def _judge_slow(facts: Facts) -> list[Finding]:
    on = {name: why for name, why in SLOW.items() if facts.environ.get(name, "").upper() not in OFF}
    if not on:
        return []
    listed = "; ".join(f"{name}={facts.environ[name]}: {why}" for name, why in on.items())
    return [
        _topic.warning(
            "slow", f"debugging settings that slow the job down: {listed}", f"unset {', '.join(on)} when you are done"
        )
    ]


def _judge_paths(facts: Facts) -> list[Finding]:
    found = []
    if facts.missing_paths:
        found.append(
            _topic.note(
                "pythonpath", f"PYTHONPATH names paths that do not exist: {_listed(facts.missing_paths)}", "correct it"
            )
        )
    if preload := facts.environ.get("LD_PRELOAD"):
        found.append(
            _topic.note("preload", f"LD_PRELOAD={preload} is loaded into every worker, and into holdfast itself")
        )
    return found


def _judge_proxies(facts: Facts) -> list[Finding]:
    set_ones = [name for name in facts.environ if name.lower() in PROXIES and facts.environ[name]]
    if not set_ones:
        return []
    return [
        _topic.note(
            "proxy",
            f"a proxy is set: {_listed(sorted(set_ones))}",
            "holdfast does not use it; gRPC and web clients in your program do, unless no_proxy names the machines of "
            "the job",
        )
    ]


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
