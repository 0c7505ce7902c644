"""How long N agents take to meet: from the start of the first to the last one that has its rank.

torch's agents are handlers of its c10d backend, threads in four processes: of one, two, four and eight, none was
clearly faster. holdfast's are in two. The store is in a process of its own for both.

All of it is on one node of a network of namespaces, which reaches no name server: torch looks up who connects, and
a server that does not answer would cost it five seconds each time.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from itertools import count as numbers
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Self

from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.network_nodes import load
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.workplace import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

BESIDE_TORCH = (16, 64, 128)
ALONE_TARGETS_S = {512: 1.0, 1_000: 2.5}
"""Where torch does not finish in any useful time."""

TORCH_PROCESSES = 4
HOLDFAST_PROCESSES = 2
MEETING_MAX_S = 120.0
"""A meeting that takes longer hangs."""

_run_ids = numbers()


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 5
    network, _ = load()
    measurements = []
    with network.Network(1) as net:
        (node,) = net.nodes
        for count in BESIDE_TORCH:
            contestants: dict[str, Callable[[int], list[float]]] = {
                HOLDFAST: partial(_sample, meet_holdfast, count, node),
                TORCH: partial(_sample, meet_torch, count, node),
            }
            measurements.append(Measurement(f"{count} agents meet", "s", in_turns(rounds, contestants)))
        for count, bound_s in ALONE_TARGETS_S.items():
            alone = in_turns(rounds, {HOLDFAST: partial(_sample, meet_holdfast, count, node)})
            measurements.append(Measurement(f"{count} agents meet", "s", alone, [Target(bound_s, at_most=True)]))
    return measurements


def _sample(meet: Callable[[int, Any], float], count: int, node: Any, _: int) -> list[float]:
    return [meet(count, node)]


def meet_holdfast(count: int, node: Any) -> float:
    return _meet("benchmarks.rendezvous_holdfast", count, node, HOLDFAST_PROCESSES)


def meet_torch(count: int, node: Any) -> float:
    return _meet("benchmarks.rendezvous_torch", count, node, TORCH_PROCESSES)


def _meet(program: str, count: int, node: Any, processes: int) -> float:
    """Seconds from the first start of any of `count` agents to the last one that has its rank."""
    run_id = f"meeting{next(_run_ids)}"
    with ExitStack() as stack:
        server = stack.enter_context(_Process(node, program, "server"))
        port = server.answer()
        shares = [count // processes + (number < count % processes) for number in range(processes)]
        agents = [
            stack.enter_context(_Process(node, program, "agents", port, str(share), str(count), run_id))
            for share in shares
        ]
        for each in agents:
            each.answer()
        began_ns = time.monotonic_ns()
        for each in agents:
            each.go()
        return (max(int(each.answer()) for each in agents) - began_ns) / 1e9


class _Process:
    def __init__(self, node: Any, program: str, *words: str) -> None:
        self._messages = TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process: subprocess.Popen[str] = node.run(
            [sys.executable, "-m", program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        is_there = select.select([self._process.stdout], [], [], MEETING_MAX_S)[0]
        line = self._process.stdout.readline().strip() if is_there else ""
        if not line:
            self._messages.seek(0)
            messages = self._messages.read().decode(errors="replace").strip()
            raise BenchmarkError(f"agents did not meet; they wrote:\n{messages[-3000:] or 'nothing'}")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._messages.close()
