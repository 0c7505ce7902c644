"""Memory: what the machine and the cgroup leave to the workers, and what they share through /dev/shm."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.doctor.finding import Finding, Topic, counted, size
from holdfast.processes.oom import limit_bytes, memory_cgroup, memory_hierarchy

if TYPE_CHECKING:
    from holdfast.doctor.context import Context

SHARED = "/dev/shm"  # noqa: S108 - files there get a random name

SHARED_A_WORKER_BYTES = 256 << 20
"""The least that data loaders and NCCL share, per worker."""

SHARED_FREE_MIN_BYTES = 16 << 20
"""With less, not even the queues between a program and its data loaders can be created."""

DOCKER_DEFAULT_BYTES = 64 << 20

MEMORY_A_WORKER_BYTES = 1 << 30
"""What a worker needs that has imported torch and has something to compute."""

NEVER_OVERCOMMIT = 2

_topic = Topic("memory")


class Shared(NamedTuple):
    """The file system at /dev/shm; an error if it is not writable."""

    total_bytes: int = 0
    free_bytes: int = 0
    error: str = ""


class Facts(NamedTuple):
    shared: Shared
    available_bytes: int
    """The memory that is available on the machine."""

    limit_bytes: int | None
    """The smallest limit among the cgroups of this process."""

    used_bytes: int
    """The memory that the cgroup with that limit uses."""

    overcommit: int


def check(context: Context) -> list[Finding]:
    return judge(probe(), context.workers)


def probe() -> Facts:
    limit, used = cgroup_memory()
    return Facts(probe_shared(), _available_bytes(), limit, used, _number("/proc/sys/vm/overcommit_memory"))


def probe_shared(path: str = SHARED) -> Shared:
    try:
        usage = os.statvfs(path)
        with tempfile.NamedTemporaryFile(prefix="holdfast-doctor-", dir=path) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return Shared(error=error.strerror or str(error))
    return Shared(usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize)


def cgroup_memory(proc: str = "/proc/self") -> tuple[int | None, int]:
    """The smallest limit among the memory cgroups of this process, and how much is used under it."""
    hierarchy = memory_hierarchy(_read(f"{proc}/mountinfo"))
    if hierarchy is None:
        return None, 0
    directory = hierarchy.directory(memory_cgroup(_read(f"{proc}/cgroup"), is_v2=hierarchy.is_v2))
    smallest: int | None = None
    used = 0
    for place in hierarchy.upwards(directory):
        limit = limit_bytes(_read(hierarchy.limit_file(place)))
        if limit is not None and (smallest is None or limit < smallest):
            smallest = limit
            used = _number(os.path.join(place, "memory.current" if hierarchy.is_v2 else "memory.usage_in_bytes"))
    return smallest, used


def judge(facts: Facts, workers: int) -> list[Finding]:
    findings = [judge_shared(facts.shared, workers), _judge_available(facts, workers)]
    if facts.overcommit == NEVER_OVERCOMMIT:
        findings.append(
            _topic.warning(
                "overcommit",
                "the kernel does not overcommit memory (vm.overcommit_memory = 2)",
                "programs that reserve much and use little fail, such as CUDA and forks of large processes: sysctl "
                "vm.overcommit_memory=0",
            )
        )
    return findings


def judge_shared(shared: Shared, workers: int) -> Finding:
    larger = (
        "make it larger: docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory at "
        "/dev/shm; mount -o remount,size=16g /dev/shm"
    )
    if shared.error:
        return _topic.problem(
            "shared",
            f"{SHARED} cannot be written to: {shared.error}",
            "queues, data loaders and NCCL need it: mount a tmpfs there that this user may write to",
        )
    what = f"{SHARED} has {size(shared.total_bytes)}, of which {size(shared.free_bytes)} are free"
    if shared.free_bytes < SHARED_FREE_MIN_BYTES:
        return _topic.problem("shared", what, f"remove what programs have left in it (ls -la {SHARED}), or {larger}")
    if shared.free_bytes < SHARED_A_WORKER_BYTES * workers:
        docker = " (docker's default)" if shared.total_bytes == DOCKER_DEFAULT_BYTES else ""
        return _topic.warning(
            "shared",
            f"{what}{docker}: little for {counted(workers, 'worker')}",
            f"when it is full, data loaders and NCCL fail with 'Bus error' or 'No space left': {larger}",
        )
    return _topic.ok("shared", what)


def _judge_available(facts: Facts, workers: int) -> Finding:
    left, whose = facts.available_bytes, "the machine has"
    if facts.limit_bytes is not None and facts.limit_bytes - facts.used_bytes < left:
        left = max(0, facts.limit_bytes - facts.used_bytes)
        whose = f"the limit of this container (its cgroup), {size(facts.limit_bytes)}, leaves"
    what = f"{whose} {size(left)} of memory"
    what += f" to {counted(workers, 'worker')}" if workers > 1 else ""
    if left < MEMORY_A_WORKER_BYTES * workers:
        return _topic.warning(
            "available",
            what,
            f"a worker that imports torch needs about {size(MEMORY_A_WORKER_BYTES)}; the kernel kills workers beyond "
            "that: " + ("raise the limit, or start fewer" if facts.limit_bytes is not None else "start fewer workers"),
        )
    return _topic.ok("available", what)


def _available_bytes() -> int:
    for line in _read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _number(path: str) -> int:
    with suppress(ValueError):
        return int(_read(path))
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
