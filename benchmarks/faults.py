"""How long after a fault all workers run again: `holdfast run` beside `torchrun`, in the same network of namespaces.

Three nodes, of which two suffice, with two plain Python workers each. Every sample has a network and a job of its own.
The clock starts with the fault and stops with the first line of the last worker that starts because of it;
when the node is lost that serves the rendezvous, it stops with the end of the last other agent.

torchrun runs with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which a node that joins splits or blocks the job.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.network_nodes import load
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.workplace import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

NODES = 3
WORKERS_A_NODE = 2
LAST_CALL_S = 1
"""How long a group that is large enough waits for more; both are told so."""

LEASE_TTL_S = 3.0
"""holdfast's, as it is by default: how long a node may be silent."""

NEVER_S = 20.0
"""What has not happened by then does not happen."""

SETTLE_S = 0.5
"""From the last worker's start to the fault: agents have long been in their wait by then."""

_ENVIRONMENTS = {
    HOLDFAST: {"HOLDFAST_TOKEN": "benchmark"},
    TORCH: {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
}


class Fault(NamedTuple):
    """Something that befalls a job of `nodes` nodes; it returns the seconds that it took, at most NEVER_S."""

    what: str
    nodes: int
    happen: Callable[[Any], float]
    target_s: float


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 3
    return [
        Measurement(
            f"{fault.what} ({NEVER_S:.0f}: never)",
            "s",
            in_turns(rounds, {name: partial(_sample, name, fault, workplace) for name in (HOLDFAST, TORCH)}),
            [Target(fault.target_s, at_most=True)],
        )
        for fault in FAULTS
    ]


def _sample(name: str, fault: Fault, workplace: Workplace, _: int) -> list[float]:
    network, job_nodes = load()
    launcher = {HOLDFAST: job_nodes.HOLDFAST, TORCH: job_nodes.TORCHRUN}[name]
    with ExitStack() as stack:
        net = stack.enter_context(network.Network(NODES))
        flags = [
            f"--nnodes={NODES - 1}:{NODES}",
            f"--nproc-per-node={WORKERS_A_NODE}",
            "--max-restarts=3",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={net.nodes[0].address}:29400",
            "--rdzv-id=faults",
        ]
        if name == TORCH:
            # Its default is 30 s at every meeting. To holdfast it would be the wish to wait for a lost node's return.
            flags.append(f"--rdzv-conf=last_call_timeout={LAST_CALL_S}")
        job = stack.enter_context(
            job_nodes.Job(net, workplace.fresh("faults"), flags, launcher=launcher, environment=_ENVIRONMENTS[name])
        )
        job.start(*net.nodes[: fault.nodes])
        try:
            job.wait_for_world(fault.nodes * WORKERS_A_NODE)
        except TimeoutError as error:
            raise BenchmarkError(f"{name}: {error}") from None
        job.stays(lambda: True, SETTLE_S)
        return [fault.happen(job)]


def _crash(job: Any) -> float:
    old = job.alive()
    victim = max(old, key=lambda life: life.rank)
    job.tell([victim], "exit 7")
    return _until_all_run(job, old, job.network.nodes, lambda: victim.heard("end"))


def _crash_is_told(job: Any) -> float:
    """Until the last worker of the other nodes has its signal to stop."""
    victim = max(job.alive(), key=lambda life: life.rank)
    others = [life for life in job.alive() if life.node != victim.node]
    job.tell([victim], "exit 7")
    try:
        job.wait_until(lambda: all(life.heard("SIGTERM") for life in others), "the signal to stop", NEVER_S)
    except TimeoutError:
        return NEVER_S
    return float(max(life.heard("SIGTERM") for life in others) - victim.heard("end")) / 1e9


def _kill_agent(job: Any) -> float:
    return _lose_last_node(job, job.agents[-1].kill)


def _stop_agent(job: Any) -> float:
    return _lose_last_node(job, lambda: job.agents[-1].kill(signal.SIGSTOP))


def _cut(job: Any) -> float:
    return _lose_last_node(job, lambda: job.network.cut(job.network.nodes[-1]))


def _lose_last_node(job: Any, lose: Callable[[], None]) -> float:
    old = job.alive()
    began_ns = time.monotonic_ns()
    lose()
    return _until_all_run(job, old, job.network.nodes[:-1], lambda: began_ns)


def _join(job: Any) -> float:
    old = job.alive()
    began_ns = time.monotonic_ns()
    job.start(job.network.nodes[-1])
    return _until_all_run(job, old, job.network.nodes, lambda: began_ns)


def _lose_endpoint(job: Any) -> float:
    first, *others = job.agents
    began_ns = time.monotonic_ns()
    first.kill()
    try:
        job.wait_for_exit(*others, deadline_s=NEVER_S)
    except TimeoutError:
        return NEVER_S
    return (time.monotonic_ns() - began_ns) / 1e9


def _until_all_run(job: Any, old: list[Any], nodes: list[Any], began_ns: Callable[[], int]) -> float:
    """Until new workers run on all of `nodes` and nobody of `old` does there: a lost node's may, which is no merit."""
    _, job_nodes = load()

    def run_again() -> bool:
        alive = job.alive(*nodes)
        is_new = not any(life in old for life in alive)
        return is_new and bool(job_nodes.is_world(alive, len(nodes) * WORKERS_A_NODE))

    try:
        job.wait_until(run_again, "all workers", NEVER_S)
    except TimeoutError:
        return NEVER_S
    return float(max(life.started_ns for life in job.alive(*nodes)) - began_ns()) / 1e9


FAULTS = (
    Fault("a worker crashes → the workers of all other nodes are stopped", NODES, _crash_is_told, 0.1),
    Fault("a worker crashes → all run again", NODES, _crash, 0.5),
    Fault("an agent is killed → the others' run again", NODES, _kill_agent, 0.5),
    Fault("a link is cut → the others' run again", NODES, _cut, LEASE_TTL_S + 0.5),
    Fault("an agent is stopped → the others' run again", NODES, _stop_agent, LEASE_TTL_S + 0.5),
    Fault("a node joins → all run again", NODES - 1, _join, 1.0),
    Fault("the serving agent is killed → all agents ended", NODES, _lose_endpoint, LEASE_TTL_S),
)
