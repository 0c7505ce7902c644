"""What an agent takes while its workers work and nothing happens: memory, wake-ups and processor time.

The workers wait. Counted are the command's own process and those between it and its workers, as holdfast's keeper: how
often one of their threads was given a processor, and for how long. The limit is the least launcher, which waits for its
children in the kernel. Two nodes are in a network of namespaces, and what is counted is the agent that does not serve
the rendezvous.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.job import LEAST, commands, environment
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.network_nodes import TOKEN_AND_OWN_STORE, load
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.topics import FOOTPRINT
from benchmarks.workplace import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.measuring import Rounds
    from benchmarks.workplace import Workplace

WORKERS = 2
MEMORY_TARGET_MIB = 25.0

READY_MAX_S = 60
"""A job that takes longer to start hangs."""

SETTLE_S = 1.0
"""From the last worker's readiness to the first look: what an agent writes about a start is written by then."""

LOOK_S = 5.0
QUICK_LOOK_S = 2.0
"""Between the two looks."""


class Idleness(NamedTuple):
    """Of the command alone, and with its helpers."""

    resident_mib: float
    all_mib: float
    wake_ups_per_s: float
    cpu_us_per_s: float


def measure(workplace: Workplace) -> list[Measurement]:
    quick = workplace.quick
    look_s = QUICK_LOOK_S if quick else LOOK_S
    everybody = (HOLDFAST, TORCH, LEAST)
    one = in_turns(1 if quick else 3, {name: partial(_one_node, name, workplace, look_s) for name in everybody})
    agent = f"agent of {WORKERS} workers"
    rows = [
        Measurement(
            f"{agent}: resident memory",
            "MiB",
            _samples(one, "resident_mib"),
            [Target(MEMORY_TARGET_MIB, at_most=True)],
            topic=FOOTPRINT,
            is_headline=True,
        ),
        Measurement(f"{agent}: … with its helpers", "MiB", _samples(one, "all_mib"), topic=FOOTPRINT),
        Measurement(
            f"{agent}, idle: wake-ups",
            "per s",
            _samples(one, "wake_ups_per_s"),
            [Target(0.0, at_most=True)],
            topic=FOOTPRINT,
            is_headline=True,
        ),
        Measurement(f"{agent}, idle: processor time", "µs/s", _samples(one, "cpu_us_per_s"), topic=FOOTPRINT),
    ]
    if not quick:
        two = in_turns(2, {name: partial(_two_nodes, name, workplace, look_s) for name in (HOLDFAST, TORCH)})
        agent = "agent on 1 of 2 nodes"
        rows += [
            Measurement(
                f"{agent}, idle: wake-ups", "per s", _samples(two, "wake_ups_per_s"), topic=FOOTPRINT, is_headline=True
            ),
            Measurement(f"{agent}, idle: processor time", "µs/s", _samples(two, "cpu_us_per_s"), topic=FOOTPRINT),
        ]
    return rows


def _samples(answers: dict[str, list[Idleness]], field: str) -> dict[str, Rounds]:
    return {name: [[getattr(answer, field)] for answer in rounds] for name, rounds in answers.items()}


def _one_node(name: str, workplace: Workplace, look_s: float, _: int) -> Idleness:
    directory = workplace.fresh("idle")
    ready_path, hold_path, program = (os.path.join(directory, each) for each in ("ready", "hold", "wait.py"))
    with open(program, "w") as file:
        file.write(f"import os\nopen({ready_path!r}, 'w').write(f'{{os.getpid()}}\\n')\nopen({hold_path!r}).read()\n")
    with ExitStack() as stack:
        # For writing too: a reader that leaves would hold the second worker up. Workers end when `hold` is closed.
        ready, hold = (stack.enter_context(_Fifo(path)) for path in (ready_path, hold_path))
        command = stack.enter_context(
            subprocess.Popen(commands(program)[name], env=environment(), stderr=subprocess.DEVNULL)
        )
        try:
            found = _idleness(command.pid, _workers(name, ready), look_s)
        except BaseException:
            command.terminate()
            raise
        finally:
            hold.close()
    if command.returncode:
        raise BenchmarkError(f"{name} failed with exit code {command.returncode}")
    return found


def _workers(name: str, ready: _Fifo) -> set[int]:
    """Their pids, once all have said them."""
    said = b""
    while said.count(b"\n") < WORKERS:
        if not select.select([ready.fd], [], [], READY_MAX_S)[0]:
            raise BenchmarkError(f"{name} did not start its workers within {READY_MAX_S} s")
        said += os.read(ready.fd, 4096)
    return set(map(int, said.split()))


def _two_nodes(name: str, workplace: Workplace, look_s: float, _: int) -> Idleness:
    network, job_nodes = load()
    launcher = {HOLDFAST: job_nodes.HOLDFAST, TORCH: job_nodes.TORCHRUN}[name]
    with ExitStack() as stack:
        net = stack.enter_context(network.Network(2))
        flags = [
            "--nnodes=2",
            f"--nproc-per-node={WORKERS}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={net.nodes[0].address}:29400",
            "--rdzv-id=idle",
        ]
        job = stack.enter_context(
            job_nodes.Job(net, workplace.fresh("idle"), flags, launcher=launcher, environment=TOKEN_AND_OWN_STORE)
        )
        _, second = job.start(*net.nodes)
        try:
            lives = job.wait_for_world(2 * WORKERS)
        except TimeoutError as error:
            raise BenchmarkError(f"{name}: {error}") from None
        return _idleness(second.pid, {life.pid for life in lives}, look_s)


class _Fifo:
    def __init__(self, path: str) -> None:
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDWR)

    def close(self) -> None:
        """A second time does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _idleness(agent: int, workers: set[int], look_s: float) -> Idleness:
    time.sleep(SETTLE_S)
    pids = [agent, *_helpers(agent, workers)]
    began, before = time.monotonic(), _spent(pids)
    time.sleep(look_s)
    took_s, after = time.monotonic() - began, _spent(pids)
    resident_kib = _field(agent, "status", "VmRSS:")
    helpers_kib = sum(_field(pid, "smaps_rollup", "Private_Clean:", "Private_Dirty:") for pid in pids[1:])
    return Idleness(
        resident_kib / 1024,
        (resident_kib + helpers_kib) / 1024,
        (after[0] - before[0]) / took_s,
        (after[1] - before[1]) / 1000 / took_s,
    )


def _helpers(pid: int, workers: set[int]) -> list[int]:
    """All below `pid` but the workers and what is below them."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            children = [int(child) for child in file.read().split()]
        for child in children:
            if child not in workers:
                found += [child, *_helpers(child, workers)]
    return found


def _spent(pids: Iterable[int]) -> tuple[int, int]:
    """How often their threads were given a processor so far, and for how many nanoseconds."""
    times = spent_ns = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{task}/schedstat") as file:
                on_processor_ns, _, given = map(int, file.read().split())
                times, spent_ns = times + given, spent_ns + on_processor_ns
    return times, spent_ns


def _field(pid: int, file_name: str, *names: str) -> int:
    with open(f"/proc/{pid}/{file_name}") as file:
        return sum(int(words[1]) for line in file if (words := line.split())[0] in names)
