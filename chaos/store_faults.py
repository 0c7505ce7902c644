"""Faults of what the nodes meet in: the members of etcd, the node that serves the store, and the relay before it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from chaos.kinds import (
    CUT_ETCD,
    DELETE_RECORD,
    FILL_ETCD,
    KILL_ETCD,
    LOSE_HOST,
    RESET_ALL,
    RESET_LINK,
    RETURN_HOST,
    STOP_ETCD,
)
from chaos.storm import NODES, SERVER
from chaos.world import HERE, LEASE_S, STOP_GRACE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.storm import Fault
    from chaos.world import World

COMMAND_MAX_S = 60
SETTLES_S = 1.0
"""How long after a disturbance its last consequences may begin: a connection that is tried again, a lease that ends."""

STAGGER_S = 0.3
"""How much later than the last one each node reaches a store that has come back."""

FULL_SLACK_S = 5.0
"""How long the end of a job may take on top of a lease and the grace of its workers, on a busy machine."""


class StoreFaults:
    """What `Faults` does to the store. Each deed returns what it hit."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._member: int | None = None
        self.deeds: dict[str, Callable[[Fault], dict[str, Any]]] = {
            KILL_ETCD: self._kill_etcd,
            STOP_ETCD: self._stop_etcd,
            CUT_ETCD: self._cut_etcd,
            FILL_ETCD: self._fill_etcd,
            DELETE_RECORD: self._delete_record,
            LOSE_HOST: self._lose_host,
            RETURN_HOST: self._return_host,
            RESET_LINK: self._reset_link,
            RESET_ALL: self._reset_all,
        }

    # The members of etcd

    def _leader(self) -> int:
        deadline = time.monotonic() + COMMAND_MAX_S
        while True:
            try:
                return int(self._world.cluster.leader())
            except AssertionError:  # they are about to elect one
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _kill_etcd(self, fault: Fault) -> dict[str, Any]:
        del fault
        self._member = self._leader()
        self._world.cluster.kill(self._member)
        time.sleep(LEASE_S["etcd"])  # what comes of it comes within a lease
        return {"member": self._member}

    def bring_back(self) -> None:
        assert self._member is not None
        self._world.cluster.restart(self._member)
        self._member = None

    def _stop_etcd(self, fault: Fault) -> dict[str, Any]:
        member = self._leader()
        process = self._world.cluster.members[member].process
        process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(fault.seconds)  # as long as the fault is
        finally:
            process.send_signal(signal.SIGCONT)
        time.sleep(SETTLES_S)
        return {"member": member}

    def _cut_etcd(self, fault: Fault) -> dict[str, Any]:
        member = self._leader()
        network = self._world.network
        network.cut(network.nodes[NODES + member])
        time.sleep(fault.seconds)  # as long as the fault is
        network.mend(network.nodes[NODES + member])
        time.sleep(SETTLES_S)
        return {"member": member}

    # What others do with etcd

    def _fill_etcd(self, fault: Fault) -> dict[str, Any]:
        """Fill it for longer than a lease. Where a worker is killed meanwhile, the job has to end, and has the time."""
        world = self._world
        filled = self._foreign("fill")
        hit: dict[str, Any] = {"amount": fault.amount, "filled": filled}
        try:
            if fault.amount:
                worker = world.observer.worker(world.name(fault.node), fault.local_rank)
                if worker is not None and worker.send(signal.SIGKILL):
                    hit |= {"killed_s": round(time.monotonic(), 3), "pid": worker.pid, "rank": worker.rank}
            agents = list(world.running.values())
            seconds = LEASE_S["etcd"] + (STOP_GRACE_S + FULL_SLACK_S if fault.amount else SETTLES_S)
            world.observer.wait(lambda: all(agent.code is not None for agent in agents), seconds)
        finally:
            self._foreign("free")
        return hit

    def _delete_record(self, fault: Fault) -> dict[str, Any]:
        world = self._world
        what = "node" if fault.amount else "generation"
        return self._foreign("delete", world.run_id, what, world.name(fault.node))

    def _foreign(self, action: str, *words: str) -> dict[str, Any]:
        """Somebody else with a client of etcd, on the machine of its first member."""
        world = self._world
        command = [sys.executable, HERE / "foreign.py", action, ",".join(world.endpoints), *words]
        ran = subprocess.run(
            [*world.network.nodes[NODES].prefix, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=COMMAND_MAX_S,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"{action}: {ran.stderr}")
        done: dict[str, Any] = json.loads(ran.stdout)
        return done

    # The node that serves the store, and the relay before it

    def _lose_host(self, fault: Fault) -> dict[str, Any]:
        self._world.end_agent(fault.node, signal.SIGKILL)
        return {}

    def _return_host(self, fault: Fault) -> dict[str, Any]:
        """Kill the agent that serves the store and start another one there at once. The others reach it late."""
        world = self._world
        for place, node in enumerate(node for node in range(NODES) if node != SERVER):
            # One after the other: what the first does in the new store must not concern those that come later.
            self._disturb([node], fault, fault.seconds + place * STAGGER_S)
        killed = world.end_agent(SERVER, signal.SIGKILL)
        killed_s = round(time.monotonic(), 3)
        world.wait_until_gone(killed)
        world.start(SERVER, warm=True)
        time.sleep(fault.seconds + NODES * STAGGER_S)  # as long as the fault is
        return {"amount": fault.amount, "seconds": fault.seconds, "killed": killed.number, "killed_s": killed_s}

    def _reset_link(self, fault: Fault) -> dict[str, Any]:
        return self._reset([fault.node], fault)

    def _reset_all(self, fault: Fault) -> dict[str, Any]:
        return self._reset(list(range(NODES)), fault)

    def _reset(self, nodes: list[int], fault: Fault) -> dict[str, Any]:
        self._disturb(nodes, fault, fault.seconds)
        time.sleep(fault.seconds + SETTLES_S)  # as long as the fault is, and what comes of it begins
        return {"amount": fault.amount, "seconds": fault.seconds}

    def _disturb(self, nodes: list[int], fault: Fault, seconds: float) -> None:
        relay = self._world.relay
        assert relay is not None
        addresses = [self._world.network.nodes[node].address for node in nodes]
        relay.disturb(addresses, **{"delay_s" if fault.amount else "refuse_s": seconds})
