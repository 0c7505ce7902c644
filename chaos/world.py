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

from chaos.observer import Observer
from chaos.record import Record
from chaos.storm import MIN_NODES, NODES

if TYPE_CHECKING:
    import signal
    from collections.abc import Collection

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

STOP_GRACE_S = 5
"""How long workers have to end by themselves. One that is stopped takes all of it."""

DISK_BYTES = 8 << 20
DISK_FILES = 4096
ETCD_BYTES = 1 << 30
ETCD_FILES = 4096
PORT = 29400
LEASE_S = {"c10d": 3.0, "etcd": 5.0}
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
        self.generation = 0
        self._stack = ExitStack()
        self.network: Any = None
        self.cluster: Any = None
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
        self.network = self._stack.enter_context(support("network").Network(NODES + members + 1))
        *nodes, witness = self.network.nodes[NODES:]
        if members:
            # In memory: the disk of one machine is too slow for what three machines and a training write through.
            self._mount(self.directory / "etcd", ETCD_BYTES, ETCD_FILES)
            cluster = support("etcd_cluster").EtcdCluster(
                members, self.directory / "etcd", [node.address for node in nodes], [node.prefix for node in nodes]
            )
            self.cluster = self._stack.enter_context(cluster)
        endpoints = self._endpoint().split(",") if members else []
        command = [sys.executable, HERE / "witness.py", LONG_LEASE_SHARE * LEASE_S[self.backend], self.slow, *endpoints]
        self._stack.callback(witness.run(command).kill)
        self.history.parent.mkdir()
        self.history.touch()
        self.slow.touch()
        self.set_goal(ENDLESS)
        for node, offset_s in enumerate(self.plan.clocks_s):
            self._mount(self.disk(node), DISK_BYTES, DISK_FILES)
            self.set_clock(node, offset_s)
        self.observer = self._stack.enter_context(Observer(self.record, self.directory / "workers", self.history))
        # Before the observer is closed, so that it sees all ends; the network ends whatever is left once more.
        self._stack.callback(self._kill_all)

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
            "--rdzv-id=chaos",
            f"--rdzv-backend={self.backend}",
            f"--rdzv-endpoint={self._endpoint()}",
            f"--log-dir={self.disk(node)}",
            "--redirects=3",
            f"--stop-grace={STOP_GRACE_S}",
        ]
        flags += ["--warm-imports=torch"] if warm else []
        words = [self.directory / "workers", name, EXAMPLE, self.history.parent, self._goal]
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
        self.record.add("agent", agent=number, node=name, pid=process.pid, warm=warm)
        self.observer.watch_agent(process, lambda code: self._ended(agent, code))

    def _ended(self, agent: Agent, code: int) -> None:
        agent.code = code
        self.record.add("agent_end", agent=agent.number, node=agent.node, code=code)

    def _endpoint(self) -> str:
        if self.cluster is None:
            return f"{self.network.nodes[0].address}:{PORT}"
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

    def end_agent(self, node: int, signum: signal.Signals) -> None:
        """End an agent by a signal. What it leaves behind is for `expect_nothing_on`."""
        self.running.pop(node).process.send_signal(signum)

    def signal_agent(self, node: int, signum: signal.Signals) -> None:
        self.running[node].process.send_signal(signum)

    # Waiting

    def settle(self, nodes: Collection[int], *, new: bool, stage: str) -> None:
        """Until the workers of exactly these nodes run in one generation and have made some steps from here on; in a
        `new` generation, if so.
        """
        expected = sorted((self.name(node), rank) for node in nodes for rank in range(self.plan.workers[node]))
        mark, before = len(self.observer.facts), self.generation

        def runs() -> bool:
            alive = list(self.observer.alive.values())
            generations = {worker.generation for worker in alive}
            if len(generations) != 1 or sorted((worker.node, worker.local_rank) for worker in alive) != expected:
                return False
            self.generation = generations.pop()
            if new and self.generation <= before:
                return False
            facts = self.observer.facts[mark:]
            made = [fact for fact in facts if "step" in fact and fact["generation"] == self.generation]
            return len(made) >= STEPS_TO_SETTLE

        if not self.observer.wait(runs, SETTLE_MAX_S):
            alive = [f"{worker.node}:{worker.local_rank}" for worker in self.observer.alive.values()]
            what = f"{stage}: waited {SETTLE_MAX_S:.0f} s for steps by {expected}; alive: {sorted(alive)}"
            self.record.add("stuck", what=what)
            raise ChaosError(what)
        self.record.add("settled", stage=stage, generation=self.generation, before=before)

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
