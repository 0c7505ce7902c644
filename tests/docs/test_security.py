"""The tables of docs/security.md are what running jobs have open, and what the code says."""

from __future__ import annotations

import importlib
import os
import select
import stat
import subprocess
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
        command = [sys.executable, "-m", "holdfast", "run", "--nproc-per-node=2", *flags]
        env = _environment({"TMPDIR": str(directory), **environment})
        self.agents = [node.run([*command, f"--node-rank={node.index}", PROGRAM, sign, go], env=env) for node in nodes]
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


GREETED = """
import socket, sys
from holdfast.coordination.wire import HEADER, decode_greeting
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 60) as connection, connection.makefile("rb") as stream:
    length, _ = HEADER.unpack(stream.read(HEADER.size))
    sys.exit(42 if decode_greeting(stream.read(length)).has_tls else 43)
"""


def is_encrypted(node, endpoint):
    """Whether the store that is served there tells its clients to speak TLS."""
    code = node.run([sys.executable, "-c", GREETED, *map(str, endpoint)]).wait(DEADLINE_S)
    return {42: True, 43: False}[code]


def check_master(job, seen):
    """The agent of rank 0 holds what workers use, at its own address, and no other agent has anything."""
    (master,) = (number for number, node in enumerate(seen) if node)
    assert seen[master] == {WORKERS_STORE: [job.nodes[master].address], HELD: ["0.0.0.0"]}


def test_the_table_has_the_sockets_that_this_test_looks_for():
    assert {row[0] for row in table("What listens")} == {STORE, WORKERS_STORE, HELD, HEALTH}
    bound = {row[0]: row[3] for row in table("What listens")}
    assert bound == {
        STORE: "the endpoint's address; with `static`, the one of `--master-addr`",
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


ELASTIC = (["--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29400"], ("10.77.0.1", 29400))
GIVEN_RANKS = (["--master-addr=10.77.0.1"], ("10.77.0.1", 29501))
on_both = pytest.mark.parametrize(("where", "endpoint"), [ELASTIC, GIVEN_RANKS], ids=["c10d", "static"])


@pytest.mark.root
@pytest.mark.parametrize("with_tls", [False, True], ids=["token", "token and TLS"])
@on_both
def test_a_job_of_two_machines_under_the_attacks_of_a_third(start, tmp_path, where, endpoint, with_tls):
    conf, known = PATIENT, []
    if with_tls:
        files = Certificates(tmp_path / "certificates", [endpoint[0]])
        conf += f",ca_cert={files.ca_cert},ssl_cert={files.server_cert},ssl_cert_key={files.server_key}"
        known = [files.ca_cert]
    job = start(2, "--nnodes=2", *where, conf, spare=1, HOLDFAST_TOKEN=TOKEN)
    seen = kinds(job, endpoint)
    assert [node.pop(STORE, None) for node in seen] == [[endpoint[0]], None]
    check_master(job, seen)
    assert is_encrypted(job.nodes[0], endpoint)
    assert job.tokens_seen == {""}
    reachable = [(each.address, each.port) for node in job.nodes for each in listening(node.pids())]
    places = [f"{host}:{port}" for host, port in sorted(reachable, key=endpoint.__ne__)]
    attack = [sys.executable, STRANGER, *known, *places]
    stranger = job.network.nodes[2].run(attack, env=_environment({"HOLDFAST_TOKEN": TOKEN}))
    assert stranger.wait(DEADLINE_S) == 0
    assert job.end() == [0, 0]


HEARD = """
import encodings.idna, os, socket, sys  # all that is imported: another user may not read where it is
os.setuid(int(sys.argv[2]))
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as connection:
    connection.settimeout(60)
    sys.exit(3 if b"--rdzv-conf store_users=" in connection.recv(4096) else 0)
"""


def hear_store(node, port, user):
    """Whether the store in which machines meet greets a user of its machine."""
    return node.run([sys.executable, "-c", HEARD, port, user]).wait(DEADLINE_S)


@pytest.mark.root
@pytest.mark.parametrize("token", [{}, {"HOLDFAST_TOKEN": TOKEN}], ids=["no token", "token"])
def test_other_users_of_the_machine_do_not_reach_a_store_on_its_loopback(tmp_path, capfd, token):
    flags = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29400"]
    flags += [f"{PATIENT},store_users={OTHER_USER + 1}"]
    with Network(1) as network:
        (node,) = network.nodes
        job = Running([node, node], tmp_path, flags, token)
        heard = [hear_store(node, 29400, user) for user in (0, OTHER_USER, OTHER_USER + 1)]
        assert heard == [ANSWERED, REFUSED, ANSWERED]
        assert job.end() == [0, 0]
    said = capfd.readouterr().err
    assert said.count(f"the store belongs to user 0, and the connecting node to user {OTHER_USER}") == 1


@pytest.mark.root
def test_two_agents_of_one_machine_that_meet_at_its_loopback(tmp_path):
    endpoint = ("127.0.0.1", 29400)
    flags = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint[0]}:{endpoint[1]}", PATIENT]
    with Network(1) as network:
        (node,) = network.nodes
        job = Running([node, node], tmp_path, flags, {})
        seen = defaultdict(list)
        for socket in listening(node.pids()):
            assert socket.pids <= {agent.pid for agent in job.agents}
            seen[STORE if socket.port == endpoint[1] else WORKERS_STORE].append(socket.address)
        assert seen == {STORE: ["127.0.0.1"], WORKERS_STORE: ["127.0.0.1"]}
        assert not is_encrypted(node, endpoint), "nothing leaves the machine"
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


ASK = """
import socket, struct, sys, os
place, source, user = (sys.argv[1], int(sys.argv[2])), (sys.argv[3], 0), int(sys.argv[4])
os.seteuid(user)
connection = socket.socket()
os.seteuid(0)
connection.bind(source)
try:
    connection.connect(place)
    connection.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE) + b"\\x0d" + struct.pack("<I", 7))
    answer = connection.recv(4)
except ConnectionError:
    answer = b""
sys.exit(0 if answer else 3)
"""
OTHER_USER = 54_322
ANSWERED, REFUSED = 0, 3


def ask_store(node, store, source="", user=0):
    """Whether the workers' store answers somebody on a node, from one of its addresses."""
    command = [sys.executable, "-c", ASK, store.address, store.port, source or node.address, user]
    return node.run(command).wait(DEADLINE_S)


def workers_store(job, endpoint=None):
    """The node that has it, and where."""
    ((node, store),) = (
        (node, each)
        for node in job.nodes
        for each in listening(node.pids())
        if (each.address, each.port) != endpoint and each.port != HEALTH_PORT
    )
    return node, store


@pytest.mark.root
@pytest.mark.parametrize("flags", [(), ("--local-addr=10.77.0.1",)], ids=["loopback", "its address"])
def test_other_users_of_the_machine_do_not_reach_the_workers_store(start, capfd, flags):
    job = start(1, *flags, spare=1)
    node, store = workers_store(job)
    source = store.address
    assert ask_store(node, store, source, OTHER_USER) == REFUSED
    assert ask_store(node, store, source) == ANSWERED
    if flags:
        assert ask_store(job.network.nodes[1], store) == REFUSED
    assert job.end() == [0]
    said = capfd.readouterr().err
    assert f"refuses user {OTHER_USER} of this machine" in said
    assert f"--rdzv-conf store_users={OTHER_USER}" in said
    assert bool(flags) == ("--rdzv-conf store_peers=10.77.0.2" in said)


@pytest.mark.root
def test_users_who_were_named_reach_the_workers_store(start, capfd):
    job = start(1, f"--rdzv-conf=store_users={OTHER_USER}")
    node, store = workers_store(job)
    assert ask_store(node, store, "127.0.0.1", OTHER_USER) == ANSWERED
    assert ask_store(node, store, "127.0.0.1", OTHER_USER + 1) == REFUSED
    assert job.end() == [0]


@pytest.mark.root
@on_both
def test_members_reach_the_workers_store_from_all_their_addresses_and_others_do_not(tmp_path, capfd, where, endpoint):
    with Network(3) as network:
        for node in network.nodes:  # a second network, as GPU machines have
            add_address(node, f"10.88.0.{node.index + 1}")
        job = Running(network.nodes[:2], tmp_path, ["--nnodes=2", *where, PATIENT], {"HOLDFAST_TOKEN": TOKEN})
        master, store = workers_store(job, endpoint)
        (member,) = (node for node in job.nodes if node is not master)
        stranger = network.nodes[2]
        for node in (master, member):
            assert ask_store(node, store) == ANSWERED
            assert ask_store(node, store, f"10.88.0.{node.index + 1}") == ANSWERED
        assert ask_store(master, store, user=OTHER_USER) == REFUSED
        assert ask_store(stranger, store) == REFUSED
        assert ask_store(stranger, store, "10.88.0.3") == REFUSED
        add_address(member, "10.99.0.2")
        add_route(master, "10.99.0.2")
        assert ask_store(member, store, "10.99.0.2") == REFUSED, "an address that was not there at the start"
        assert job.end() == [0, 0]
    said = capfd.readouterr().err
    for address in ("10.77.0.3", "10.88.0.3", "10.99.0.2"):
        assert said.count(f"--rdzv-conf store_peers={address} ") == 1


def add_address(node, address):
    subprocess.run(["ip", "-n", node.namespace, "addr", "add", f"{address}/24", "dev", "eth0"], check=True)


def add_route(node, address):
    subprocess.run(["ip", "-n", node.namespace, "route", "add", f"{address}/32", "dev", "eth0"], check=True)


@pytest.mark.root
def test_a_static_job_without_a_token_opens_what_one_with_a_token_opens(start, capfd):
    where, endpoint = GIVEN_RANKS
    job = start(2, "--nnodes=2", *where, PATIENT)
    seen = kinds(job, endpoint)
    assert [node.pop(STORE, None) for node in seen] == [[endpoint[0]], None]
    check_master(job, seen)
    assert is_encrypted(job.nodes[0], endpoint)
    assert job.end() == [0, 0]
    assert capfd.readouterr().err.count("without a token") == 2


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
