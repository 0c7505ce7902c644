"""The nodes of a storm: a network, the store that agents meet in, a disk and a clock for each node, and the agents."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from chaos.kinds import FILL_ETCD, HANG_WORKER
from chaos.observer import Observer
from chaos.record import Record
from chaos.relay import RelayControl
from chaos.storm import MIN_NODES, NODES, SERVER

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Collection

    from chaos.storm import Plan

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "train_ddp.py"
SUPPORT = HERE.parent / "tests" / "support"

ENDLESS = str(10**9)
"""The steps of the training until the storm is over."""

SETTLE_MAX_S = 180.0
"""How long the world may take to run again. A lease, a pause and some cold starts on a busy machine are in it."""

STEPS_TO_SETTLE = 3
"""How many steps a world must have made to be called running."""

GONE_MAX_S = 30.0
"""How long what an agent has left may take to be gone."""

STEADY_S = 4.0
"""How long a machine must have stayed for its losses to be forgotten: less than most faults take."""

STOP_GRACE_S = 5
"""How long workers have to end by themselves. One that is stopped takes all of it."""

END_MAX_S = 45.0
"""How long the agents may take to end a job that a fault ends, or to go on with it. Whether that was in time is for the
checker to say; this is when the storm gives up on them.
"""

HANG_TIMEOUT_S = 10
"""Longer than a cold start of a worker on a busy machine, in which the others wait for it and do nothing."""

STDERR_KEPT = 2000
"""How many of the last characters of an agent's stderr are recorded."""

KEEPER = "holdfast-keeper"
"""The name of a keeper's process."""

DISK_BYTES = 8 << 20
DISK_FILES = 4096
ETCD_BYTES = 3 << 30
ETCD_FILES = 4096
ETCD_QUOTA_BYTES = 16 << 20
"""What the members of etcd may hold, where a storm fills them. A run itself needs far less than a megabyte of it."""

PORT = 29400
LEASE_S = {"c10d": 3.0, "etcd": 8.0}
"""How long leases are by default."""

LONG_LEASE_SHARE = 0.2
"""The share of a lease that the witness must have waited for an answer for it to count: see `attribution`."""

_PREFIX = "holdfast-chaos-"
_STEERS_A_JOB = ("PET_", "TORCH", "HOLDFAST_", "CHAOS_", "SLURM_")


class ChaosError(Exception):
    """The storm cannot go on: the machine lacks something, or the world does not run again."""


def support(name: str) -> Any:
    """A module of what the tests have: networks of namespaces, clusters of etcd."""
    if str(SUPPORT) not in sys.path:
        sys.path.insert(0, str(SUPPORT))
    return import_module(name)


class Agent:
    """One agent from its start to its end."""

    def __init__(self, number: int, node: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.number = number
        self.node = node
        self.process = process
        self.directory = directory
        self.code: int | None = None

    def stderr(self) -> str:
        return (self.directory / "stderr").read_text(errors="replace")


class World:
    """A context manager; at its end nothing is left but the directory."""

    def __init__(self, plan: Plan, seed: int, backend: str) -> None:
        self.backend = backend
        self.plan = plan
        _remove_leftovers()
        self.directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.record = Record(self.directory / "record.jsonl")
        self.record.add("storm", seed=seed, backend=backend, workers=plan.workers, lease_s=LEASE_S[backend])
        self.agents: list[Agent] = []
        self.running: dict[int, Agent] = {}
        self.job = 1
        self.generation = 0
        self.settled: frozenset[int] = frozenset()
        self._stack = ExitStack()
        self.network: Any = None
        self.cluster: Any = None
        self.relay: RelayControl | None = None
        self.requests = self.directory / "requests"
        self.history = self.directory / "training" / "history.jsonl"
        self.checkpoint = self.directory / "training" / "checkpoint.pt"
        self.slow = self.directory / "slow.jsonl"
        self._goal = self.directory / "goal"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self.record.close()

    def _make(self) -> None:
        members = 3 if self.backend == "etcd" else 0
        self.network = self._stack.enter_context(support("network").Network(NODES + (members or 1) + 1))
        *nodes, witness = self.network.nodes[NODES:]
        if members:
            # In memory: the disk of one machine is too slow for what three machines and a training write through.
            self._mount(self.directory / "etcd", ETCD_BYTES, ETCD_FILES)
            cluster = support("etcd_cluster").EtcdCluster(
                members,
                self.directory / "etcd",
                [node.address for node in nodes],
                [node.prefix for node in nodes],
                options=[f"--quota-backend-bytes={ETCD_QUOTA_BYTES}"] if self._has(FILL_ETCD) else [],
            )
            self.cluster = self._stack.enter_context(cluster)
        else:
            self.relay = RelayControl(nodes[0], PORT, f"{self.network.nodes[SERVER].address}:{PORT}")
        endpoints = self._endpoint().split(",") if members else []
        command = [sys.executable, HERE / "witness.py", LONG_LEASE_SHARE * LEASE_S[self.backend], self.slow, *endpoints]
        self._stack.callback(witness.run(command).kill)
        for directory in (self.history.parent, self.requests, self.directory / "pulses"):
            directory.mkdir()
        self.history.touch()
        self.slow.touch()
        self.set_goal(ENDLESS)
        for node, offset_s in enumerate(self.plan.clocks_s):
            self._mount(self.disk(node), DISK_BYTES, DISK_FILES)
            self.set_clock(node, offset_s)
        self.observer = self._stack.enter_context(Observer(self.record, self.directory / "workers", self.history))
        # Before the observer is closed, so that it sees all ends; the network ends whatever is left once more.
        self._stack.callback(self._kill_all)

    def _has(self, kind: str) -> bool:
        return any(fault.kind == kind for step in self.plan.steps for fault in step.faults)

    def _mount(self, disk: Path, most_bytes: int, most_files: int) -> None:
        disk.mkdir(parents=True)
        options = f"size={most_bytes},nr_inodes={most_files}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "holdfast-chaos", disk], check=True)
        self._stack.callback(_unmount, disk)

    def _kill_all(self) -> None:
        for node in self.network.nodes[:NODES]:
            node.kill_all()

    # Nodes

    def disk(self, node: int) -> Path:
        return self.directory / "disks" / self.name(node)

    def name(self, node: int) -> str:
        return f"node{node + 1}"

    def set_clock(self, node: int, offset_s: int) -> None:
        """In place: programs have the file mapped."""
        path = self.directory / f"{self.name(node)}.clock"
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.write(struct.pack("q", offset_s))

    def set_goal(self, steps: str) -> None:
        """How many steps workers make that start from here on: see `worker`."""
        self._goal.write_text(steps)

    def start(self, node: int, *, warm: bool) -> None:
        """Start an agent."""
        number = len(self.agents) + 1
        name = self.name(node)
        directory = self.directory / "agents" / f"{number:03}-{name}"
        directory.mkdir(parents=True)
        flags = [
            f"--nnodes={MIN_NODES}:{NODES}",
            f"--nproc-per-node={self.plan.workers[node]}",
            "--max-restarts=1000000",
            # A storm is one fault after the other: the pauses of `auto` would grow to half a minute, and whoever is
            # hit three times in a row would be left out.
            "--restart-policy=always",
            f"--rdzv-id={self.run_id}",
            f"--rdzv-backend={self.backend}",
            f"--rdzv-endpoint={self._endpoint()}",
            f"--log-dir={self.disk(node)}",
            "--redirects=3",
            f"--stop-grace={STOP_GRACE_S}",
        ]
        flags += ["--warm-imports=torch"] if warm else []
        flags += [f"--hang-timeout={HANG_TIMEOUT_S}"] if self._has(HANG_WORKER) else []
        # Nobody has the relay's address, so nobody would know that it is to serve the store.
        conf = [f"is_host={str(node == SERVER).lower()}"] if self.relay is not None else []
        # Likewise, machines that are hit within a minute would be held back for minutes; those that flap are faster.
        conf += [f"steady_time={STEADY_S}"]
        flags += [f"--rdzv-conf={','.join(conf)}"]
        words = [self.directory / "workers", name, self.job, EXAMPLE, self.history.parent, self._goal]
        with open(directory / "stdout", "wb") as stdout, open(directory / "stderr", "wb") as stderr:
            process = self.network.nodes[node].run(
                [sys.executable, "-m", "holdfast", "run", *flags, HERE / "worker.py", *words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=directory,
                env=self._environment(node),
            )
        agent = Agent(number, name, process, directory)
        self.agents.append(agent)
        self.running[node] = agent
        self.record.add("agent", agent=number, job=self.job, node=name, pid=process.pid, warm=warm)
        self.observer.watch_agent(process, lambda code: self._ended(agent, code))

    def _ended(self, agent: Agent, code: int) -> None:
        agent.code = code
        said = agent.stderr()[-STDERR_KEPT:]
        self.record.add("agent_end", agent=agent.number, node=agent.node, code=code, said=said)

    def _endpoint(self) -> str:
        if self.relay is not None:
            return f"{self.relay.address}:{PORT}"
        return ",".join(f"{host}:{port}" for host, port in self.cluster.endpoints)

    def _environment(self, node: int) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_STEERS_A_JOB)}
        return {
            **kept,
            "HOLDFAST_TOKEN": "a token that only the storm knows",
            "TMPDIR": str(self.disk(node)),
            "XDG_STATE_HOME": str(self.directory / "state"),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(HERE / "clock"),
            "CHAOS_CLOCK": str(self.directory / f"{self.name(node)}.clock"),
        }

    @property
    def run_id(self) -> str:
        return f"chaos-{self.job}"

    @property
    def endpoints(self) -> list[str]:
        return self._endpoint().split(",")

    def end_agent(self, node: int, signum: signal.Signals) -> Agent:
        """End an agent by a signal. What it leaves behind is for `expect_nothing_on`."""
        agent = self.running.pop(node)
        agent.process.send_signal(signum)
        return agent

    def signal_keepers(self, node: int, signum: signal.Signals) -> list[int]:
        """Send a signal to a node's keepers; returns them. There is one, but for moments when a set takes over."""
        found = []
        for pid in self.network.nodes[node].pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == KEEPER:
                    os.kill(pid, signum)
                    found.append(pid)
        return found

    def clear(self) -> None:
        """End all agents, whatever they do, and all that they have left: the job is over, or stuck."""
        for agent in self.running.values():
            if agent.code is None:
                self.record.add("cleared", agent=agent.number, node=agent.node)
        left = list(self.running.values())
        self.running.clear()
        self._kill_all()
        self.expect_exit(left, GONE_MAX_S)

    def begin_job(self) -> None:
        """From here on agents are of a new job, which no record of the last one can concern."""
        self.job += 1
        self.generation = 0
        self.record.add("job", job=self.job)

    def signal_agent(self, node: int, signum: signal.Signals) -> None:
        self.running[node].process.send_signal(signum)

    # Waiting

    def settle(
        self, nodes: Collection[int], *, new: bool, stage: str, deciding: Collection[Agent] | None = None
    ) -> bool:
        """Until the workers of exactly these nodes run in one generation and have made some steps from here on; in a
        `new` generation, if so. False if the `deciding` agents have all ended instead: the job is over.
        """
        expected = sorted((self.name(node), rank) for node in nodes for rank in range(self.plan.workers[node]))
        runs = self._runs(expected, new=new)
        agents = [self.running[node] for node in nodes] if deciding is None else deciding
        before = self.generation

        def is_over() -> bool:
            ended = [agent.code is not None for agent in agents]
            return runs() or (any(ended) if deciding is None else all(ended))

        patience_s = SETTLE_MAX_S if deciding is None else END_MAX_S
        is_decided = self.observer.wait(is_over, patience_s)
        ended = [agent for agent in agents if agent.code is not None]
        if is_decided and deciding is not None and len(ended) == len(agents):
            self.record.add("job_end", stage=stage, job=self.job, before=before)
            return False
        if ended or not is_decided:
            alive = sorted(f"{worker.node}:{worker.local_rank}" for worker in self.observer.alive.values())
            codes = {agent.node: agent.code for agent in ended}
            what = f"{stage}: waited for steps by {expected}; alive: {alive}; agents that ended: {codes}"
            self.record.add("stuck", what=what)
            raise ChaosError(what)
        self.settled = frozenset(self.observer.alive)
        self.record.add("settled", stage=stage, job=self.job, generation=self.generation, before=before)
        return True

    def _runs(self, expected: list[tuple[str, int]], *, new: bool) -> Callable[[], bool]:
        mark, earlier = len(self.observer.facts), self.settled

        def runs() -> bool:
            alive = self.observer.alive
            if len({worker.world for worker in alive.values()}) != 1 or (new and earlier & alive.keys()):
                return False
            if sorted((worker.node, worker.local_rank) for worker in alive.values()) != expected:
                return False
            self.generation = next(iter(alive.values())).generation
            facts = self.observer.facts[mark:]
            made = [fact for fact in facts if "step" in fact and fact["generation"] == self.generation]
            return len(made) >= STEPS_TO_SETTLE

        return runs

    def wait_until_runs(self, nodes: Collection[int]) -> bool:
        """Until the workers of exactly these nodes have made steps in a new generation; nothing is recorded of it."""
        expected = sorted((self.name(node), rank) for node in nodes for rank in range(self.plan.workers[node]))
        return self.observer.wait(self._runs(expected, new=True), END_MAX_S)

    def wait_until_gone(self, agent: Agent) -> None:
        """Until an agent that was ended is gone; the end of a job that does not come is recorded elsewhere."""
        wait_until_ended(agent, self.observer, GONE_MAX_S)

    def expect_exit(self, agents: Collection[Agent], seconds: float = SETTLE_MAX_S) -> None:
        if not self.observer.wait(lambda: all(agent.code is not None for agent in agents), seconds):
            what = f"the end of {', '.join(agent.node for agent in agents if agent.code is None)}"
            self.record.add("stuck", what=what)
            raise ChaosError(what)

    def expect_nothing_on(self, node: int) -> None:
        """Wait until no process is left on a node, and record those that stay."""
        namespace = self.network.nodes[node]
        deadline = time.monotonic() + GONE_MAX_S
        while (pids := namespace.pids()) and time.monotonic() < deadline:
            with ExitStack() as stack:
                poll = select.poll()
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        pidfd = os.pidfd_open(pid)
                        stack.callback(os.close, pidfd)
                        poll.register(pidfd, select.POLLIN)
                poll.poll(1000)
        if pids:
            self.record.add("left", node=self.name(node), pids={pid: _command(pid) for pid in pids})

    def describe(self) -> str:
        """What the agents said, for whoever reads why a storm failed."""
        return "\n".join(f"--- agent {agent.number} on {agent.node}\n{agent.stderr()[-3000:]}" for agent in self.agents)


def wait_until_ended(agent: Agent, observer: Observer, seconds: float) -> bool:
    return observer.wait(lambda: agent.code is not None, seconds)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "gone"


def _unmount(disk: Path) -> None:
    subprocess.run(["umount", "--lazy", disk], check=False, stderr=subprocess.DEVNULL)


def _remove_leftovers() -> None:
    """Unmount the disks of storms that were killed."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        maker = place.name.removeprefix(_PREFIX).partition("-")[0]
        if maker.isdecimal() and not os.path.exists(f"/proc/{maker}"):
            for disk in [place / "etcd", *place.glob("disks/*")]:
                if disk.is_mount():
                    _unmount(disk)


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
