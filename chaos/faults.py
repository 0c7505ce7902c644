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
    CUT_WITHOUT_KEEPER,
    FILL_DISK,
    FLAP_LINK,
    FLAP_NODE,
    FREEZE_WORKER,
    HANG_WORKER,
    KILL_AGENT,
    KILL_ETCD,
    KILL_WORKER,
    KINDS,
    PAUSE_AGENT,
    REMOVE_NODE,
    REMOVE_WITHOUT_KEEPER,
    SHIFT_CLOCK,
    SLOW_LINK,
    STOP_AGENT,
    STOP_KEEPER,
    STOP_NODE,
    STOP_WORKER,
)
from chaos.store_faults import StoreFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.storm import Fault
    from chaos.world import World

FILLER = "filler"
"""The beginning of the names of files that a disk is filled with."""

CHUNK_BYTES = 1 << 20

FULL_RATE_KBIT_S = 50_000
"""A slowed link of this many kbit/s, divided by how many times slower it is to be."""

STOPPED = 2
"""How a worker hangs that a signal has stopped."""

FLAP_S = 15.0
"""For how long a node flaps."""

FLAP_PERIOD_S = 1.0
"""How long each of its agents lives."""

_COMMAND_MAX_S = 30


def possible(backend: str) -> tuple[dict[str, str], dict[str, str]]:
    """The faults that can be done here, each with how, and those that cannot, each with the reason."""
    can = {name: kind.text for name, kind in KINDS.items() if kind.backend in ("", backend)}
    cannot = {name: f"{kind.backend} only, and this is {backend}" for name, kind in KINDS.items() if name not in can}
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
        self._store = StoreFaults(world)
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
            FILL_DISK: self._fill_disk,
            REMOVE_NODE: self._remove_node,
            ADD_NODE: self._add_node,
            STOP_KEEPER: self._stop_keeper,
            CUT_WITHOUT_KEEPER: self._cut_without_keeper,
            STOP_NODE: self._stop_node,
            REMOVE_WITHOUT_KEEPER: self._remove_without_keeper,
            HANG_WORKER: self._hang_worker,
            FLAP_NODE: self._flap_node,
            **self._store.deeds,
        }
        self._remedies: dict[str, Callable[[int], object]] = {
            STOP_AGENT: lambda node: world.signal_agent(node, signal.SIGCONT),
            STOP_NODE: self._continue_node,
            CUT_LINK: self._mend_link,
            CUT_WITHOUT_KEEPER: self._mend_with_keeper,
            SLOW_LINK: lambda node: self._slow(node, 0),
            SHIFT_CLOCK: lambda node: world.set_clock(node, world.plan.clocks_s[node]),
            FILL_DISK: self._free_disk,
            KILL_ETCD: lambda _: self._store.bring_back(),
        }

    def do(self, step: int, fault: Fault) -> None:
        world = self._world
        node = world.name(fault.node) if fault.node >= 0 else ""
        began = time.monotonic()
        hit = self._deeds[fault.kind](fault)
        took_s = round(time.monotonic() - began, 3)
        facts = {"began_s": round(began, 3), "took_s": took_s, **hit}
        world.record.add("fault", step=step, kind=fault.kind, node=node, **facts)

    def undo(self, step: int, fault: Fault) -> None:
        world, node = self._world, fault.node
        self._remedies[fault.kind](node)
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

    def _hang_worker(self, fault: Fault) -> dict[str, Any]:
        """Ask a worker to stand still and wait until it does, or stop it. `hit` is false if it ended before."""
        if fault.amount == STOPPED:
            return self._signal_worker(fault, signal.SIGSTOP)
        worker = self._world.observer.worker(self._world.name(fault.node), fault.local_rank)
        request = self._world.requests / f"{self._world.name(fault.node)}-{fault.local_rank}"
        with open(request.with_suffix(".new"), "w") as file:
            file.write(("before", "after")[fault.amount])
        os.replace(request.with_suffix(".new"), request)
        deadline = time.monotonic() + _COMMAND_MAX_S
        while request.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if worker is None or request.exists():
            request.unlink(missing_ok=True)
            return {"hit": False}
        return {"hit": True, "pid": worker.pid, "rank": worker.rank, "generation": worker.generation}

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

    # Keepers

    def _stop_keeper(self, fault: Fault) -> dict[str, Any]:
        self._world.signal_keepers(fault.node, signal.SIGSTOP)
        time.sleep(fault.seconds)  # as long as the fault is
        self._world.signal_keepers(fault.node, signal.SIGCONT)
        return {}

    def _stop_node(self, fault: Fault) -> dict[str, Any]:
        self._world.signal_keepers(fault.node, signal.SIGSTOP)
        return self._stop_agent(fault)

    def _continue_node(self, node: int) -> None:
        self._world.signal_keepers(node, signal.SIGCONT)
        self._world.signal_agent(node, signal.SIGCONT)

    def _mend_with_keeper(self, node: int) -> None:
        self._world.signal_keepers(node, signal.SIGCONT)
        self._mend_link(node)

    def _cut_without_keeper(self, fault: Fault) -> dict[str, Any]:
        self._world.signal_keepers(fault.node, signal.SIGSTOP)
        return self._cut_link(fault)

    def _remove_without_keeper(self, fault: Fault) -> dict[str, Any]:
        self._world.signal_keepers(fault.node, signal.SIGSTOP)
        return self._remove_node(fault)

    # Nodes that flap

    def _flap_node(self, fault: Fault) -> dict[str, Any]:
        """Let a node's agent be ended, then start and be ended again and again. The last one stays.

        `flapped` is what was ended, and how. `from_s` is when the others ran without the node, and `until_s` when the
        last agent started: between the two, those that come and go are to leave the others in peace.
        """
        world = self._world
        signum = signal.SIGTERM if fault.amount else signal.SIGKILL
        flapped = [world.end_agent(fault.node, signum)]
        others = set(world.running)
        world.wait_until_gone(flapped[0])
        flaps_s = FLAP_S if world.wait_until_runs(others) else 0.0
        from_s = time.monotonic()
        while time.monotonic() < from_s + flaps_s:
            world.start(fault.node, warm=True)
            time.sleep(FLAP_PERIOD_S)  # as long as this agent lives
            flapped.append(world.end_agent(fault.node, signum))
            world.wait_until_gone(flapped[-1])
        until_s = time.monotonic()
        world.start(fault.node, warm=True)
        flaps = {"flapped": [agent.number for agent in flapped], "signal": int(signum)}
        return {**flaps, "from_s": round(from_s, 3), "until_s": round(until_s, 3)}

    # Links

    def _cut_link(self, fault: Fault) -> dict[str, Any]:
        self._world.network.cut(self._world.network.nodes[fault.node])
        return {}

    def _mend_link(self, node: int) -> None:
        self._world.network.mend(self._world.network.nodes[node])

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
                    _fill(lambda number=number: (disk / f"{FILLER}{number}").touch())  # type: ignore[misc]  # a lambda with a default
            with open(disk / FILLER, "wb", buffering=0) as file:
                while True:
                    _fill(lambda: file.write(bytes(CHUNK_BYTES)))
        return {"amount": fault.amount, "free_bytes": shutil.disk_usage(disk).free}

    def _free_disk(self, node: int) -> None:
        disk = self._world.disk(node)
        for name in os.listdir(disk):
            if name.startswith(FILLER):
                os.unlink(disk / name)


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
