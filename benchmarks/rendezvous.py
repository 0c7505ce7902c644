"""How long N agents take to meet: from the start of the first to the last one that has its rank.

torch's agents are handlers of its c10d backend, threads in four processes: of one, two, four and eight, none was
clearly faster. holdfast's are in two, and encrypt what they say, as on several machines; what that costs is the
difference to plain text. The store is in a process of its own for both. The limit is as many connections
over loopback, each answered when all have said a word.

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

from benchmarks.limits import CONNECTIONS, connections_meet_s
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.network_nodes import load
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.topics import RENDEZVOUS
from benchmarks.workplace import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

SIZES = (16, 64, 256, 512, 1_000)
QUICK_SIZES = (16, 1_000)
PLAIN_SIZES = (64, 512, 1_000)
TARGETS_S = {512: 1.5, 1_000: 2.5}

FEW_ROUNDS_FROM = 256
"""Where a meeting of torch's agents takes too long for more than one round; quick runs are without it there."""

NEVER_S = 60.0
"""A meeting that has not happened by then is not waited for."""

TORCH_PROCESSES = 4
HOLDFAST_PROCESSES = 2
START_MAX_S = 120.0
"""Processes that are not ready by then hang."""

_run_ids = numbers()


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 3
    network, _ = load()
    measurements = []
    with network.Network(1) as net:
        (node,) = net.nodes
        for count in QUICK_SIZES if workplace.quick else SIZES:
            is_slow = count >= FEW_ROUNDS_FROM
            contestants: dict[str, Callable[[int], list[float]]] = {
                HOLDFAST: partial(_sample, partial(meet_holdfast, how="tls"), count, node),
                TORCH: partial(_sample, meet_torch, count, node),
                CONNECTIONS: partial(_bare, count),
            }
            torchs = {TORCH: contestants.pop(TORCH)} if is_slow else {}
            samples = in_turns(rounds, contestants)
            if not workplace.quick:
                samples |= in_turns(1, torchs)
            measurements.append(
                Measurement(
                    f"{count} agents meet",
                    "s",
                    samples,
                    [Target(TARGETS_S[count], at_most=True)] if count in TARGETS_S else [],
                    topic=RENDEZVOUS,
                    ceiling=NEVER_S,
                    nodes=count,
                    is_headline=count in (SIZES[0], SIZES[-1]),
                )
            )
            if count in PLAIN_SIZES:
                plain: dict[str, Callable[[int], list[float]]] = {
                    HOLDFAST: partial(_sample, partial(meet_holdfast, how="plain"), count, node)
                }
                measurements.append(
                    Measurement(
                        f"{count} agents meet in plain text",
                        "s",
                        in_turns(rounds, plain),
                        topic=RENDEZVOUS,
                        nodes=count,
                    )
                )
    return measurements


def _sample(meet: Callable[[int, Any], float], count: int, node: Any, _: int) -> list[float]:
    return [meet(count, node)]


def _bare(count: int, _: int) -> list[float]:
    return [connections_meet_s(count)]


def meet_holdfast(count: int, node: Any, how: str) -> float:
    return _meet("benchmarks.rendezvous_holdfast", count, node, HOLDFAST_PROCESSES, how)


def meet_torch(count: int, node: Any) -> float:
    return _meet("benchmarks.rendezvous_torch", count, node, TORCH_PROCESSES)


def _meet(program: str, count: int, node: Any, processes: int, *how: str) -> float:
    """Seconds from the first start of any of `count` agents to the last one that has its rank, at most NEVER_S."""
    run_id = f"meeting{next(_run_ids)}"
    with ExitStack() as stack:
        server = stack.enter_context(_Process(node, program, "server", *how))
        port = server.answer()
        shares = [count // processes + (number < count % processes) for number in range(processes)]
        agents = [
            stack.enter_context(_Process(node, program, "agents", *how, port, str(share), str(count), run_id))
            for share in shares
        ]
        for each in agents:
            each.answer()
        began_ns = time.monotonic_ns()
        for each in agents:
            each.go()
        try:
            ended_ns = [int(each.answer(NEVER_S - (time.monotonic_ns() - began_ns) / 1e9)) for each in agents]
        except TimeoutError:
            return NEVER_S
        return (max(ended_ns) - began_ns) / 1e9


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

    def answer(self, timeout_s: float = START_MAX_S) -> str:
        """Its next line. Raises TimeoutError if there is none in time."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], max(timeout_s, 0.0))[0]:
            raise TimeoutError
        line = self._process.stdout.readline().strip()
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
