"""The limits of a process and its user: open files, processes, locked memory, stacks, core files."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast import procfs
from holdfast.doctor.finding import Finding, Topic, counted, size

if TYPE_CHECKING:
    from typing import TypeAlias

    from holdfast.doctor.context import Context

    Limit: TypeAlias = tuple[int, int]
    """The current limit, and what it can be raised to; `UNLIMITED` for none."""

UNLIMITED = resource.RLIM_INFINITY

FILES_A_WORKER = 12
"""The most descriptors that the agent has open per worker: its logs, its pipes."""

FILES_OF_AN_AGENT = 64
"""How many more descriptors the agent has open."""

FILES_GOOD = 4096
"""With fewer, data loaders that share tensors by descriptors run out of them."""

FILES_A_NODE = 4
"""How many descriptors the machine that serves the store reserves for each machine of the job."""

FILES_OF_A_HOST = 256

THREADS_A_WORKER = 64
"""Roughly how many processes and threads a worker has, with its libraries and data loaders."""

THREADS_LEAST = 8
"""With fewer processes and threads left per worker, the workers do not start."""

STACK_LEAST_BYTES = 8 << 20
"""The usual default; native libraries rely on it."""

INFINIBAND = "/sys/class/infiniband"

_topic = Topic("limits")


class Facts(NamedTuple):
    files: Limit
    processes: Limit
    processes_used: int
    """How many processes and threads the user has."""

    is_root: bool
    core: Limit
    memlock: Limit
    stack: Limit
    has_rdma: bool
    cgroup_pids: tuple[int, int] | None
    """The cgroup's limit of processes, and how many it has; None without a limit."""


def check(context: Context) -> list[Finding]:
    return judge(probe(), context.workers)


def probe() -> Facts:
    return Facts(
        resource.getrlimit(resource.RLIMIT_NOFILE),
        resource.getrlimit(resource.RLIMIT_NPROC),
        _threads_of(os.getuid()),
        os.geteuid() == 0,
        resource.getrlimit(resource.RLIMIT_CORE),
        resource.getrlimit(resource.RLIMIT_MEMLOCK),
        resource.getrlimit(resource.RLIMIT_STACK),
        bool(os.path.isdir(INFINIBAND) and os.listdir(INFINIBAND)),
        cgroup_pids(),
    )


def cgroup_pids(proc: str = "/proc/self", root: str = "/sys/fs/cgroup") -> tuple[int, int] | None:
    """The tightest limit of processes among the cgroups of this process, and how many there are."""
    tightest: tuple[int, int] | None = None
    for line in _read(f"{proc}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "pids"):
            continue
        base = root if not controllers else os.path.join(root, "pids")
        directory = os.path.join(base, path.lstrip("/"))
        while directory.startswith(base):
            most, now = _read(f"{directory}/pids.max").strip(), _read(f"{directory}/pids.current").strip()
            if most.isdecimal() and now.isdecimal():
                found = (int(most), int(now))
                if tightest is None or found[0] - found[1] < tightest[0] - tightest[1]:
                    tightest = found
            if directory == base:
                break
            directory = os.path.dirname(directory)
    return tightest


def judge(facts: Facts, workers: int) -> list[Finding]:
    return [
        _judge_files(facts.files, workers),
        _judge_processes(facts, workers),
        *([_judge_cgroup(facts.cgroup_pids, workers)] if facts.cgroup_pids else []),
        _judge_memlock(facts),
        _judge_stack(facts.stack),
        _judge_core(facts.core),
    ]


def _judge_files(limit: Limit, workers: int) -> Finding:
    soft, hard = limit
    what = f"open files: {_shown(soft)} for a process" + (f", {_shown(hard)} if it asks" if hard != soft else "")
    needed = FILES_OF_AN_AGENT + FILES_A_WORKER * workers
    raising = "raise it: ulimit -n 65536, LimitNOFILE= of a systemd unit, docker run --ulimit nofile=65536"
    if _is_below(soft, needed):
        return _topic.problem("open-files", f"{what}; an agent of {counted(workers, 'worker')} needs {needed}", raising)
    if _is_below(soft, FILES_GOOD):
        return _topic.warning("open-files", what, f"data loaders run out of them ('Too many open files'): {raising}")
    room = "any number of" if hard == UNLIMITED else f"{max(0, hard - FILES_OF_A_HOST) // FILES_A_NODE:,}"
    return _topic.ok("open-files", f"{what}; enough to serve the store to {room} machines")


def _judge_processes(facts: Facts, workers: int) -> Finding:
    soft = facts.processes[0]
    if facts.is_root or soft == UNLIMITED:
        return _topic.ok("processes", "processes of this user: no limit" + (" for root" if facts.is_root else ""))
    left = soft - facts.processes_used
    what = f"processes and threads of this user: {facts.processes_used:,} of {soft:,}"
    raising = "raise it: ulimit -u, /etc/security/limits.conf, TasksMax= of a systemd unit"
    return _judge_room("processes", what, left, workers, raising)


def _judge_cgroup(pids: tuple[int, int], workers: int) -> Finding:
    most, now = pids
    what = f"processes and threads of this container (its cgroup): {now:,} of {most:,}"
    return _judge_room(
        "container-processes",
        what,
        most - now,
        workers,
        "raise it: docker run --pids-limit, podPidsLimit of the kubelet",
    )


def _judge_room(check: str, what: str, left: int, workers: int, raising: str) -> Finding:
    if left < THREADS_LEAST * workers:
        return _topic.problem(check, f"{what}: too few are left for {counted(workers, 'worker')}", raising)
    if left < THREADS_A_WORKER * workers:
        return _topic.warning(
            check,
            f"{what}: {left:,} are left for {counted(workers, 'worker')}",
            f"a worker with its libraries and loaders comes to about {THREADS_A_WORKER}: {raising}",
        )
    return _topic.ok(check, what)


def _judge_memlock(facts: Facts) -> Finding:
    soft = facts.memlock[0]
    what = f"locked memory: {'unlimited' if soft == UNLIMITED else size(soft)}"
    if soft == UNLIMITED:
        return _topic.ok("locked-memory", what)
    if facts.has_rdma:
        return _topic.warning(
            "locked-memory",
            f"{what}, and there is an RDMA device",
            "NCCL cannot register its memory with it: ulimit -l unlimited, docker run --ulimit memlock=-1",
        )
    return _topic.ok("locked-memory", f"{what}; only RDMA devices need more, and there are none")


def _judge_stack(limit: Limit) -> Finding:
    soft = limit[0]
    if soft == UNLIMITED:
        return _topic.note(
            "stack",
            "stack: unlimited, which gives threads only 2 MiB each and an old memory layout",
            "programs are usually tested with ulimit -s 8192",
        )
    if soft < STACK_LEAST_BYTES:
        return _topic.warning("stack", f"stack: {size(soft)}", "native libraries may crash: ulimit -s 8192")
    return _topic.ok("stack", f"stack: {size(soft)}")


def _judge_core(limit: Limit) -> Finding:
    soft = limit[0]
    if soft == 0:
        return _topic.ok("core-files", "core files: none; after a native crash, holdfast keeps the Python stacks")
    if soft == UNLIMITED:
        return _topic.note(
            "core-files",
            "core files: of any size",
            "a worker that crashes may write all of its memory to disk before others learn of it: ulimit -c 0, unless "
            "you want them",
        )
    return _topic.ok("core-files", f"core files: up to {size(soft)}")


def _is_below(limit: int, count: int) -> bool:
    return limit != UNLIMITED and limit < count


def _shown(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else f"{limit:,}"


def _threads_of(uid: int) -> int:
    threads = 0
    for pid in procfs.processes():
        with suppress(OSError):  # the process has ended
            if procfs.owner(pid) == uid:
                threads += len(procfs.threads(pid))
    return threads


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
