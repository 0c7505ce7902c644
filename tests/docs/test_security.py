"""The tables of docs/security.md are what running jobs have open, and what the code says."""

from __future__ import annotations

import importlib
import os
import select
import stat
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from etcd_cluster import Certificates, EtcdCluster
from job_nodes import _environment
from network import Network
from open_sockets import held_ports, listening, named_pipes, unix_pairs

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
PROGRAM = ROOT / "tests" / "support" / "page_programs" / "lingering.py"
STRANGER = ROOT / "tests" / "support" / "stranger.py"

DEADLINE_S = 90
PATIENT = "--rdzv-conf=keep_alive_interval=10"
"""On a busy machine nobody is taken for lost."""

HEALTH_PORT = 8777
STORE, WORKERS_STORE, HELD, HEALTH = (
    "the store in which machines meet",
    "the workers' store",
    "the port that is held for JAX",
    "the health check",
)
TOKEN = "a token that only the agents know"


def table(heading):
    """The rows of the first table below a heading, as lists of cells."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip(" |") for cell in row] for row in rows[2:]]


class Running:
    """A job of two workers a node; `token_seen` is what its workers have of the token."""

    def __init__(self, nodes, directory, flags, environment):
        self.nodes = nodes
        sign, go = directory / "sign", directory / "go"
        for pipe in (sign, go):
            os.mkfifo(pipe)
        self._sign, self._go = (os.open(pipe, os.O_RDWR | os.O_CLOEXEC) for pipe in (sign, go))
        command = [sys.executable, "-m", "holdfast", "run", "--nproc-per-node=2", *flags, PROGRAM, sign, go]
        env = _environment({"TMPDIR": str(directory), **environment})
        self.agents = [node.run(command, env=env) for node in nodes]
        said = b""
        while said.count(b"\n") < 2 * len(nodes):
            assert select.select([self._sign], [], [], DEADLINE_S)[0], "the workers do not come to run"
            said += os.read(self._sign, 1 << 16)
        self.tokens_seen = set(said.decode().split("\n")[:-1])

    def end(self):
        """Let the workers end: they read from a pipe that ends with its last writer."""
        os.close(self._go)
        codes = [agent.wait(DEADLINE_S) for agent in self.agents]
        os.close(self._sign)
        return codes


@pytest.fixture
def start(tmp_path):
    """Starts a job on as many nodes of a network."""
    made = []

    def start(size, *flags, spare=0, **environment):
        made.append(Network(size + spare))
        network = made[-1].__enter__()
        job = Running(network.nodes[:size], tmp_path, flags, environment)
        job.network = network
        return job

    yield start
    for network in made:
        network.close()


def kinds(job, endpoint=None):
    """For each node, where each row of the table was seen. What fits none of them fails."""
    found = []
    for node, agent in zip(job.nodes, job.agents, strict=True):
        seen = defaultdict(list)
        for socket in listening(node.pids()):
            assert socket.pids == {agent.pid}, f"{socket} is not the agent's alone"
            assert socket.family == "tcp", socket
            if (socket.address, socket.port) == endpoint:
                kind = STORE
            else:
                kind = HEALTH if socket.port == HEALTH_PORT else WORKERS_STORE
            seen[kind].append(socket.address)
        for address, _ in held_ports(agent.pid):
            seen[HELD].append(address)
        found.append(dict(seen))
    return found


def check_master(job, seen):
    """The agent of rank 0 holds what workers use, at its own address, and no other agent has anything."""
    (master,) = (number for number, node in enumerate(seen) if node)
    assert seen[master] == {WORKERS_STORE: [job.nodes[master].address], HELD: ["0.0.0.0"]}


def test_the_table_has_the_sockets_that_this_test_looks_for():
    assert {row[0] for row in table("What listens")} == {STORE, WORKERS_STORE, HELD, HEALTH}
    bound = {row[0]: row[3] for row in table("What listens")}
    assert bound == {
        STORE: "the endpoint's address",
        WORKERS_STORE: "the master's address; on one machine 127.0.0.1",
        HELD: "all addresses",
        HEALTH: "all addresses",
    }


@pytest.mark.root
def test_a_job_on_one_machine_with_all_that_can_be_asked_for(start, tmp_path):
    job = start(
        1,
        "--warm",
        TORCHELASTIC_HEALTH_CHECK_PORT=str(HEALTH_PORT),
        TORCHELASTIC_ENABLE_FILE_TIMER="1",
        HOLDFAST_TOKEN=TOKEN,
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert kinds(job) == [{WORKERS_STORE: ["127.0.0.1"], HELD: ["0.0.0.0"], HEALTH: ["0.0.0.0"]}]
    (agent,) = job.agents
    assert unix_pairs(agent.pid) == 1, "the template's"
    requests, timers = sorted(named_pipes(agent.pid), key=os.path.basename)
    assert (os.path.basename(requests), os.path.basename(timers)[:15]) == ("requests", "watchdog_timer_")
    pages = {os.path.dirname(path) for pid in job.nodes[0].pids() for path in named_pipes(pid) if "pages" in path}
    (page_directory,) = pages
    assert page_directory.startswith("/dev/shm/holdfast-pages-")
    modes = {path: stat.S_IMODE(os.stat(path).st_mode) for path in (requests, timers, page_directory)}
    assert list(modes.values()) == [0o600, 0o600, 0o700], modes
    for directory in (os.path.dirname(requests), tmp_path / "state" / "holdfast" / "runs"):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert job.tokens_seen == {""}
    assert job.end() == [0]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), f"the token is in {path}"


@pytest.mark.root
@pytest.mark.parametrize("with_tls", [False, True], ids=["token", "token and TLS"])
def test_a_job_of_two_machines_under_the_attacks_of_a_third(start, tmp_path, with_tls):
    endpoint = ("10.77.0.1", 29400)
    conf, known = PATIENT, []
    if with_tls:
        files = Certificates(tmp_path / "certificates", [endpoint[0]])
        conf += f",ca_cert={files.ca_cert},ssl_cert={files.server_cert},ssl_cert_key={files.server_key}"
        known = [files.ca_cert]
    flags = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint[0]}:{endpoint[1]}", conf]
    job = start(2, *flags, spare=1, HOLDFAST_TOKEN=TOKEN)
    seen = kinds(job, endpoint)
    assert [node.pop(STORE, None) for node in seen] == [[endpoint[0]], None]
    check_master(job, seen)
    assert job.tokens_seen == {""}
    reachable = [(each.address, each.port) for node in job.nodes for each in listening(node.pids())]
    places = [f"{host}:{port}" for host, port in sorted(reachable, key=endpoint.__ne__)]
    attack = [sys.executable, STRANGER, *known, *places]
    stranger = job.network.nodes[2].run(attack, env=_environment({"HOLDFAST_TOKEN": TOKEN}))
    assert stranger.wait(DEADLINE_S) == 0
    assert job.end() == [0, 0]


@pytest.mark.root
@pytest.mark.etcd
def test_a_job_that_meets_in_etcd_opens_no_store_for_it(tmp_path):
    with Network(3) as network:
        member = network.nodes[2]
        with EtcdCluster(1, tmp_path / "etcd", [member.address], [member.prefix]):
            flags = ["--nnodes=2", "--rdzv-backend=etcd", f"--rdzv-endpoint={member.address}:2379", PATIENT]
            job = Running(network.nodes[:2], tmp_path, flags, {})
            check_master(job, kinds(job))
            assert job.end() == [0, 0]


@pytest.mark.parametrize(("constant", "value"), [row[-2:] for row in table("Limits")], ids=lambda text: text.strip("`"))
def test_a_limit_of_the_page_is_the_code_s(constant, value):
    module, _, name = constant.strip("`").rpartition(".")
    assert value == written(name, getattr(importlib.import_module(f"holdfast.{module}"), name))


def written(name, number):
    """A number as the page writes it, by the unit that its name ends with."""
    if name.endswith("_BYTES"):
        for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
            if number % size == 0:
                return f"{number // size:,} {unit}"
        return f"{number:,} bytes"
    return f"{number:g} s" if name.endswith("_S") else f"{number:,}"
