"""What each fault does, and undoes. `possible` says which of them this machine can do."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from chaos.kinds import (
    ADD_NODE,
    CUT_LINK,
    FILL_DISK,
    FLAP_LINK,
    FREEZE_WORKER,
    KILL_AGENT,
    KILL_ETCD,
    KILL_WORKER,
    KINDS,
    PAUSE_AGENT,
    REMOVE_NODE,
    SHIFT_CLOCK,
    SLOW_LINK,
    STOP_AGENT,
    STOP_WORKER,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.storm import Fault
    from chaos.world import World

FILLER = "filler"
"""The beginning of the names of files that a disk is filled with."""

CHUNK_BYTES = 1 << 20

FULL_RATE_KBIT_S = 50_000
"""A slowed link of this many kbit/s, divided by how many times slower it is to be."""

_COMMAND_MAX_S = 30


def possible(backend: str) -> tuple[dict[str, str], dict[str, str]]:
    """The faults that can be done here, each with how, and those that cannot, each with the reason."""
    can = {name: kind.text for name, kind in KINDS.items() if backend == "etcd" or not kind.needs_etcd}
    cannot = {name: f"meets in etcd only, and this is {backend}" for name in KINDS if name not in can}
    slowing = slow_how()
    if slowing:
        can[SLOW_LINK] += f" by {slowing}"
    else:
        cannot[SLOW_LINK] = f"the kernel has neither sch_netem nor sch_tbf, and {can.pop(SLOW_LINK)} needs one"
    return can, cannot


def slow_how() -> str:
    """The queueing discipline that links are slowed with: "netem", "tbf", or "" if there is none."""
    namespace = f"holdfast-chaos-probe-{secrets.token_hex(3)}"
    _run("ip", "netns", "add", namespace)
    try:
        for name, words in (("netem", ["delay", "1ms"]), ("tbf", ["rate", "1mbit", "burst", "16kb", "latency", "1s"])):
            command = ["ip", "netns", "exec", namespace, "tc", "qdisc", "replace", "dev", "lo", "root", name, *words]
            if subprocess.run(command, capture_output=True, timeout=_COMMAND_MAX_S, check=False).returncode == 0:
                return name
        return ""
    finally:
        _run("ip", "netns", "del", namespace)


class Faults:
    """Carries out faults on a world. Each that is done is recorded with what it hit."""

    def __init__(self, world: World, slowing: str) -> None:
        self._world = world
        self._slowing = slowing
        self._member: int | None = None
        self._deeds: dict[str, Callable[[Fault], dict[str, Any]]] = {
            KILL_WORKER: self._kill_worker,
            STOP_WORKER: self._stop_worker,
            FREEZE_WORKER: self._freeze_worker,
            KILL_AGENT: self._kill_agent,
            STOP_AGENT: self._stop_agent,
            PAUSE_AGENT: self._pause_agent,
            CUT_LINK: self._cut_link,
            FLAP_LINK: self._flap_link,
            SLOW_LINK: self._slow_link,
            SHIFT_CLOCK: self._shift_clock,
            KILL_ETCD: self._kill_etcd,
            FILL_DISK: self._fill_disk,
            REMOVE_NODE: self._remove_node,
            ADD_NODE: self._add_node,
        }

    def do(self, step: int, fault: Fault) -> None:
        world = self._world
        node = world.name(fault.node) if fault.node >= 0 else ""
        began = time.monotonic()
        hit = self._deeds[fault.kind](fault)
        took_s = round(time.monotonic() - began, 3)
        world.record.add("fault", step=step, kind=fault.kind, node=node, took_s=took_s, **hit)

    def undo(self, step: int, fault: Fault) -> None:
        world, node = self._world, fault.node
        if fault.kind == STOP_AGENT:
            world.signal_agent(node, signal.SIGCONT)
        elif fault.kind == CUT_LINK:
            world.network.mend(world.network.nodes[node])
        elif fault.kind == SLOW_LINK:
            self._slow(node, 0)
        elif fault.kind == SHIFT_CLOCK:
            world.set_clock(node, world.plan.clocks_s[node])
        elif fault.kind == FILL_DISK:
            for name in os.listdir(world.disk(node)):
                if name.startswith(FILLER):
                    os.unlink(world.disk(node) / name)
        elif fault.kind == KILL_ETCD:
            assert self._member is not None
            world.cluster.restart(self._member)
            self._member = None
        world.record.add("undo", step=step, kind=fault.kind, node=world.name(node) if node >= 0 else "")

    # Workers

    def _kill_worker(self, fault: Fault) -> dict[str, Any]:
        return self._signal_worker(fault, signal.SIGKILL)

    def _stop_worker(self, fault: Fault) -> dict[str, Any]:
        hit = self._signal_worker(fault, signal.SIGSTOP)
        time.sleep(fault.seconds)  # as long as the fault is
        self._signal_worker(fault, signal.SIGCONT)
        return hit

    def _freeze_worker(self, fault: Fault) -> dict[str, Any]:
        return self._signal_worker(fault, signal.SIGSTOP)

    def _signal_worker(self, fault: Fault, signum: signal.Signals) -> dict[str, Any]:
        """`hit` is false if another fault of the same step has ended it already."""
        worker = self._world.observer.worker(self._world.name(fault.node), fault.local_rank)
        if worker is None or not worker.send(signum):
            return {"hit": False}
        return {"hit": True, "pid": worker.pid, "rank": worker.rank, "generation": worker.generation}

    # Agents

    def _kill_agent(self, fault: Fault) -> dict[str, Any]:
        self._world.end_agent(fault.node, signal.SIGKILL)
        return {}

    def _stop_agent(self, fault: Fault) -> dict[str, Any]:
        self._world.signal_agent(fault.node, signal.SIGSTOP)
        return {}

    def _pause_agent(self, fault: Fault) -> dict[str, Any]:
        self._world.signal_agent(fault.node, signal.SIGSTOP)
        time.sleep(fault.seconds)  # as long as the fault is
        self._world.signal_agent(fault.node, signal.SIGCONT)
        return {}

    def _remove_node(self, fault: Fault) -> dict[str, Any]:
        self._world.end_agent(fault.node, signal.SIGTERM)
        return {}

    def _add_node(self, fault: Fault) -> dict[str, Any]:
        self._world.start(fault.node, warm=bool(fault.amount))
        return {}

    # Links

    def _cut_link(self, fault: Fault) -> dict[str, Any]:
        self._world.network.cut(self._world.network.nodes[fault.node])
        return {}

    def _flap_link(self, fault: Fault) -> dict[str, Any]:
        node = self._world.network.nodes[fault.node]
        self._world.network.cut(node)
        time.sleep(fault.seconds)  # as long as the fault is
        self._world.network.mend(node)
        return {}

    def _slow_link(self, fault: Fault) -> dict[str, Any]:
        self._slow(fault.node, fault.amount)
        return {"amount": fault.amount}

    def _slow(self, node: int, amount: int) -> None:
        network, node_ = self._world.network, self._world.network.nodes[node]
        if self._slowing == "netem" or not amount:
            network.slow(node_, amount)
        else:
            network.limit(node_, FULL_RATE_KBIT_S // amount)

    # The rest of a node

    def _shift_clock(self, fault: Fault) -> dict[str, Any]:
        self._world.set_clock(fault.node, fault.amount)
        return {"amount": fault.amount}

    def _fill_disk(self, fault: Fault) -> dict[str, Any]:
        disk = self._world.disk(fault.node)
        with contextlib.suppress(_FullError):
            if fault.amount:
                for number in range(1 << 20):
                    _fill(lambda number=number: (disk / f"{FILLER}{number}").touch())  # type: ignore[misc]
            with open(disk / FILLER, "wb", buffering=0) as file:
                while True:
                    _fill(lambda: file.write(bytes(CHUNK_BYTES)))
        return {"amount": fault.amount, "free_bytes": shutil.disk_usage(disk).free}

    # The store

    def _kill_etcd(self, fault: Fault) -> dict[str, Any]:
        del fault
        deadline = time.monotonic() + _COMMAND_MAX_S
        while self._member is None:
            try:
                self._member = self._world.cluster.leader()
            except AssertionError:  # they are about to elect one
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        self._world.cluster.kill(self._member)
        return {"member": self._member}


class _FullError(Exception):
    """The disk is full."""


def _fill(action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _FullError from None


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_COMMAND_MAX_S)
