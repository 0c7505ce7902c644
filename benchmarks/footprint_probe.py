"""Starts workers that sleep, says what that took of this process, and stops them.

Arguments: the module with `start_processes` (or "" to spawn them without any), the number of workers, a log directory,
and the streams to tee. Prints the parent's resident memory in KiB, the private memory of processes between it and its
workers in KiB, and the parent's threads. It imports nothing else, since that would be measured as well.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SLEEP = ("sleep", "60")  # longer than the measurement, and still bounded if this process is killed


def main(module: str, nprocs: int, log_dir: str, tee: int) -> None:
    if not module:
        pids = [os.posix_spawnp(SLEEP[0], SLEEP, os.environ) for _ in range(nprocs)]
        report(pids)
        for pid in pids:
            os.kill(pid, 15)
        return
    system = import_module(module)
    context = system.start_processes(
        "footprint",
        SLEEP[0],
        dict.fromkeys(range(nprocs), SLEEP[1:]),
        {rank: {} for rank in range(nprocs)},
        system.DefaultLogsSpecs(log_dir=log_dir, tee=system.Std(tee)),
    )
    try:
        report(context.pids().values())
    finally:
        context.close()


def report(workers: Iterable[int]) -> None:
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as file:
        helpers = set(map(int, file.read().split())) - set(workers)
    print(
        fields("self", "status", "VmRSS:"), sum(private_kib(pid) for pid in helpers), len(os.listdir("/proc/self/task"))
    )


def private_kib(pid: int) -> int:
    return fields(str(pid), "smaps_rollup", "Private_Clean:", "Private_Dirty:")


def fields(process: str, file_name: str, *names: str) -> int:
    with open(f"/proc/{process}/{file_name}") as file:
        return sum(int(words[1]) for line in file if (words := line.split())[0] in names)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
