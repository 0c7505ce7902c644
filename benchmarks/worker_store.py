"""The store that workers share: holdfast's server beside torch's own, both asked by torch's own client.

How many operations a second one client gets, and eight together; and how long 32 workers take to set up their process
group. Servers and clients are processes of their own and share the machine's processors. All are on one node of a
network of namespaces, which reaches no name server: torch looks up who connects, and a server that does not answer
would cost it five seconds.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Self

from benchmarks.limits import CONNECTIONS, ECHO, connections_meet_s, echo_rate
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.network_nodes import load
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.topics import WORKER_STORE
from benchmarks.workplace import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

OPERATIONS = {
    "get": "get",
    "add": "add",
    "check": "check",
    "wait": "wait (key is there)",
}
QUICK_OPERATIONS = ("get", "add")
CLIENTS = (1, 8)
RANKS = 32

RATE_TARGET = 0.5
INIT_TARGET = 1.5

ANSWER_MAX_S = 100.0
"""A sample that takes longer hangs."""


def measure(workplace: Workplace) -> list[Measurement]:
    quick = workplace.quick
    measurements = []
    with ExitStack() as stack:
        network, _ = load()
        (node,) = stack.enter_context(network.Network(1)).nodes
        servers = {system: stack.enter_context(_Program(node, "server", system)) for system in (HOLDFAST, TORCH)}
        clients = stack.enter_context(_Program(node, "clients"))

        def contestants(task: dict[str, Any]) -> dict[str, Callable[[int], list[float]]]:
            return {system: partial(_sample, server, clients, task) for system, server in servers.items()}

        def rates(operation: str, count: int) -> Measurement:
            for_s = 0.2 if quick else 0.5
            task = {"task": "rate", "operation": operation, "clients": count, "for_s": for_s}
            everybody = {**contestants(task), ECHO: lambda _: [echo_rate(count, for_s)]}
            return Measurement(
                f"{count} client{'s' * (count > 1)}: {OPERATIONS[operation]}",
                "ops/s",
                in_turns(1 if quick else 5, everybody),
                [Target(RATE_TARGET, at_most=False, against=TORCH)],
                topic=WORKER_STORE,
                is_headline=operation == "get" and count > 1,
            )

        for count in CLIENTS:
            measurements += [rates(operation, count) for operation in (QUICK_OPERATIONS if quick else OPERATIONS)]
        measurements.append(
            Measurement(
                f"{RANKS} ranks: init_process_group (gloo)",
                "s",
                in_turns(
                    1 if quick else 7,
                    {
                        **contestants({"task": "init", "ranks": RANKS}),
                        CONNECTIONS: lambda _: [connections_meet_s(RANKS)],
                    },
                ),
                [Target(INIT_TARGET, at_most=True, against=TORCH)],
                topic=WORKER_STORE,
                is_headline=True,
            )
        )
    return measurements


def _sample(server: _Program, clients: _Program, task: dict[str, Any], _: int) -> list[float]:
    """Of a store of its own: process groups leave their keys behind."""
    port = server.ask({})
    return [clients.ask(task | {"port": port})]


class _Program:
    """A process of `worker_store_programs`, which answers in lines."""

    def __init__(self, node: Any, *words: str) -> None:
        self._messages = TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process: subprocess.Popen[str] = node.run(
            [sys.executable, "-m", "benchmarks.worker_store_programs", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def ask(self, task: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        is_there = select.select([self._process.stdout], [], [], ANSWER_MAX_S)[0]
        line = self._process.stdout.readline() if is_there else ""
        if not line:
            self._messages.seek(0)
            messages = self._messages.read().decode(errors="replace").strip()
            raise BenchmarkError(f"the store's benchmark had no answer; it wrote:\n{messages[-3000:] or 'nothing'}")
        return json.loads(line)

    def __enter__(self) -> Self:
        """Wait for its imports, so that they are not at work when something is measured."""
        try:
            self._answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._messages.close()
