"""How long after a fault all workers run again: `holdfast run` beside `torchrun`, in the same network of namespaces.

Three nodes, of which two suffice, with two plain Python workers each. Every sample has a network and a job of its own.
The clock starts with the fault and stops with the first line of the last worker that starts because of it;
when the node is lost that serves the rendezvous, it stops with the end of the last other agent. A quick run has one job
of each system, which a node joins and in which a worker crashes.

torchrun runs with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which a node that joins splits or blocks the job.

The limit is to start as many interpreters at once; where it is only about what has ended, a pidfd wake-up and a
round trip.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.limits import INTERPRETERS, NOTICE, interpreters_s, notice_s
from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.network_nodes import TOKEN_AND_OWN_STORE, load
from benchmarks.subject import HOLDFAST, TORCH
from benchmarks.topics import NODES as TOPIC
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

STARTS = 3
"""How often a job is started at most: the start is not what is measured here, and on a busy machine it may fail."""

SETTLE_S = 0.5
"""From the last worker's start to the fault: agents have long been in their wait by then."""


class Row(NamedTuple):
    """What is shown of one of a fault's times; `starts` is how many workers start, none if something only ends."""

    what: str
    target_s: float
    starts: int


class Fault(NamedTuple):
    """Something that befalls a job of `nodes` nodes; for each row it returns the seconds, at most NEVER_S."""

    nodes: int
    happen: Callable[[Any], list[float]]
    rows: tuple[Row, ...]


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 3
    return [each for fault in (QUICK_FAULTS if workplace.quick else FAULTS) for each in _of(fault, rounds, workplace)]


def _of(fault: Fault, rounds: int, workplace: Workplace) -> list[Measurement]:
    everybody: dict[str, Callable[[int], list[float]]] = {
        name: partial(_sample, name, fault, workplace) for name in (HOLDFAST, TORCH)
    }
    everybody[INTERPRETERS] = partial(_bare, fault)
    answers = in_turns(rounds, everybody, is_hopeless=lambda times: min(times) >= NEVER_S)
    return [
        Measurement(
            row.what,
            "s",
            {
                name if name != INTERPRETERS or row.starts else NOTICE: [[answer[index]] for answer in rounds]
                for name, rounds in answers.items()
            },
            [Target(row.target_s, at_most=True)],
            topic=TOPIC,
            ceiling=NEVER_S,
            is_headline=True,
        )
        for index, row in enumerate(fault.rows)
    ]


def _bare(fault: Fault, _: int) -> list[float]:
    return [interpreters_s(row.starts) if row.starts else notice_s() for row in fault.rows]


def _sample(name: str, fault: Fault, workplace: Workplace, _: int) -> list[float]:
    """Of the first job that comes so far that something can befall it."""
    for _attempt in range(STARTS - 1):
        try:
            return _befallen(name, fault, workplace)
        except _NotStartedError as error:
            print(f"{name}: {str(error).splitlines()[0]}; once more", file=sys.stderr, flush=True)
    try:
        return _befallen(name, fault, workplace)
    except _NotStartedError as error:
        raise BenchmarkError(f"{name}: {error}") from None


class _NotStartedError(Exception):
    """The nodes of a job did not meet."""


def _befallen(name: str, fault: Fault, workplace: Workplace) -> list[float]:
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
            job_nodes.Job(net, workplace.fresh("faults"), flags, launcher=launcher, environment=TOKEN_AND_OWN_STORE)
        )
        job.start(*net.nodes[: fault.nodes])
        try:
            job.wait_for_world(fault.nodes * WORKERS_A_NODE)
        except TimeoutError as error:
            raise _NotStartedError(error) from None
        job.stays(lambda: True, SETTLE_S)
        return fault.happen(job)


def _crash(job: Any) -> list[float]:
    """Until the last worker of the other nodes has its signal to stop, and until all run again."""
    old = job.alive()
    victim = max(old, key=lambda life: life.rank)
    others = [life for life in old if life.node != victim.node]
    job.tell([victim], "exit 7")
    again_s = _until_all_run(job, old, job.network.nodes, lambda: victim.heard("end"))
    told_ns = [life.heard("SIGTERM") for life in others]
    if not all(told_ns):
        return [NEVER_S, *again_s]
    return [(max(told_ns) - victim.heard("end")) / 1e9, *again_s]


def _join_and_crash(job: Any) -> list[float]:
    joined_s = _join(job)
    if joined_s[0] >= NEVER_S:
        return [NEVER_S, NEVER_S, NEVER_S]
    job.stays(lambda: True, SETTLE_S)
    told_s, again_s = _crash(job)
    return [told_s, again_s, *joined_s]


def _kill_agent(job: Any) -> list[float]:
    return _lose_last_node(job, job.agents[-1].kill)


def _stop_agent(job: Any) -> list[float]:
    return _lose_last_node(job, lambda: job.agents[-1].kill(signal.SIGSTOP))


def _cut(job: Any) -> list[float]:
    return _lose_last_node(job, lambda: job.network.cut(job.network.nodes[-1]))


def _lose_last_node(job: Any, lose: Callable[[], None]) -> list[float]:
    old = job.alive()
    began_ns = time.monotonic_ns()
    lose()
    return _until_all_run(job, old, job.network.nodes[:-1], lambda: began_ns)


def _join(job: Any) -> list[float]:
    old = job.alive()
    began_ns = time.monotonic_ns()
    job.start(job.network.nodes[-1])
    return _until_all_run(job, old, job.network.nodes, lambda: began_ns)


def _lose_endpoint(job: Any) -> list[float]:
    first, *others = job.agents
    began_ns = time.monotonic_ns()
    first.kill()
    try:
        job.wait_for_exit(*others, deadline_s=NEVER_S)
    except TimeoutError:
        return [NEVER_S]
    return [(time.monotonic_ns() - began_ns) / 1e9]


def _until_all_run(job: Any, old: list[Any], nodes: list[Any], began_ns: Callable[[], int]) -> list[float]:
    """Until new workers run on all of `nodes` and nobody of `old` does there: a lost node's may, which is no merit."""
    _, job_nodes = load()

    def run_again() -> bool:
        alive = job.alive(*nodes)
        is_new = not any(life in old for life in alive)
        return is_new and bool(job_nodes.is_world(alive, len(nodes) * WORKERS_A_NODE))

    try:
        job.wait_until(run_again, "all workers", NEVER_S)
    except TimeoutError:
        return [NEVER_S]
    return [float(max(life.started_ns for life in job.alive(*nodes)) - began_ns()) / 1e9]


_ALL, _REST = NODES * WORKERS_A_NODE, (NODES - 1) * WORKERS_A_NODE
_TOLD = Row("a worker crashes → those of other nodes are stopped", 0.1, 0)
_CRASH = Row("a worker crashes → all run again", 0.5, _ALL)
_JOIN = Row("a node joins → all run again", 1.0, _ALL)

FAULTS = (
    Fault(NODES, _crash, (_TOLD, _CRASH)),
    Fault(NODES, _kill_agent, (Row("an agent is killed → the others' run again", 0.5, _REST),)),
    Fault(NODES, _cut, (Row("a link is cut → the others' run again", LEASE_TTL_S + 0.5, _REST),)),
    Fault(NODES, _stop_agent, (Row("an agent is stopped → the others' run again", LEASE_TTL_S + 0.5, _REST),)),
    Fault(NODES - 1, _join, (_JOIN,)),
    Fault(NODES, _lose_endpoint, (Row("the store's serving agent is killed → all end", LEASE_TTL_S, 0),)),
)
QUICK_FAULTS = (Fault(NODES - 1, _join_and_crash, (_TOLD, _CRASH, _JOIN)),)
