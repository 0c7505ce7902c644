"""The machines that integration tests run on: apart from each other and from us, and gone at the end."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
from liveness import wait_for_end
from meeting_places import Etcd
from network import Network, NetworkError, _directory, _names

pytestmark = pytest.mark.root

DEADLINE_S = 60
SILENCE_S = 1.5
"""How long nothing must happen; no event can tell that none will come."""

SERVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], 4000), family=family)
print("listening", flush=True)
connection, peer = server.accept()
print("from", peer[0], flush=True)
while data := connection.recv(100):
    print(data.decode(), flush=True)
print("closed", flush=True)
"""

CLIENT = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 4000), timeout=60)
connection.settimeout(None)
print("connected", flush=True)
for line in sys.stdin:
    connection.sendall(line.strip().encode())
    print("sent", flush=True)
"""


def python(node, code, *args):
    return node.run([sys.executable, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answers(program):
    return bool(select.select([program.stdout], [], [], SILENCE_S)[0])


def connected(server, client, address):
    """A server and a client that talk to each other."""
    served = python(server, SERVER, address)
    assert served.stdout.readline() == "listening\n"
    talker = python(client, CLIENT, address)
    assert talker.stdout.readline() == "connected\n"
    assert served.stdout.readline().startswith("from ")
    return served, talker


def say(talker, text):
    talker.stdin.write(f"{text}\n")
    talker.stdin.flush()
    assert talker.stdout.readline() == "sent\n"


@pytest.mark.parametrize("family", ["address", "address6"])
def test_nodes_reach_each_other(network, family):
    first, _, third = network(3).nodes
    served, talker = connected(first, third, getattr(first, family))
    say(talker, "hello")
    assert served.stdout.readline() == "hello\n"
    talker.stdin.close()
    assert served.stdout.readline() == "closed\n"


def test_a_node_has_its_own_name_and_knows_the_others(network):
    nodes = network(2).nodes
    code = "import socket; print(socket.gethostname(), socket.getfqdn(), socket.gethostbyname('node1'))"
    assert python(nodes[1], code).communicate()[0].split() == ["node2", "node2", nodes[0].address]
    assert socket.gethostname() != "node2"


def test_a_node_has_a_loopback_of_its_own(network):
    nodes = network(2).nodes
    for node in nodes:  # the same port twice
        assert python(node, SERVER, "127.0.0.1").stdout.readline() == "listening\n"


def test_the_pid_is_the_programs(network):
    (node,) = network(1).nodes
    program = python(node, "import os; print(os.getpid(), flush=True); input()")
    assert int(program.stdout.readline()) == program.pid
    assert node.pids() == [program.pid]


def test_two_networks_do_not_see_each_other(network):
    here, there = network(2), network(2)
    served = python(here.nodes[0], SERVER, here.nodes[0].address)
    assert served.stdout.readline() == "listening\n"
    code = (
        "import socket, sys\ntry: socket.create_connection((sys.argv[1], 4000))\nexcept OSError as e: print(e.strerror)"
    )
    assert python(there.nodes[1], code, here.nodes[0].address).communicate()[0] == "Connection refused\n"
    assert not answers(served)


def test_where_the_tests_run_there_is_nothing_of_it(network):
    before = socket.if_nameindex()
    (node,) = network(1).nodes
    assert socket.if_nameindex() == before
    with socket.socket() as ours, pytest.raises(OSError, match="assign requested address"):
        ours.bind((node.address, 0))


def test_a_cut_is_silent_and_can_be_mended(network):
    net = network(2)
    served, talker = connected(*net.nodes, net.nodes[0].address)
    net.cut(net.nodes[1])
    say(talker, "into the void")  # as far as the sender knows
    assert not answers(served)
    assert talker.poll() is None
    net.mend(net.nodes[1])
    assert served.stdout.readline() == "into the void\n"


def test_the_end_of_a_node_that_was_cut_off_is_silent_too(network):
    net = network(2)
    served, talker = connected(*net.nodes, net.nodes[0].address)
    net.cut(net.nodes[1])
    talker.kill()
    talker.wait(DEADLINE_S)
    assert not answers(served)


def test_a_cut_leaves_the_others_alone(network):
    net = network(3)
    served, talker = connected(*net.nodes[:2], net.nodes[0].address)
    net.cut(net.nodes[2])
    say(talker, "still here")
    assert served.stdout.readline() == "still here\n"


def test_a_slow_link_is_slow(network):
    net = network(2)
    try:
        net.slow(net.nodes[0], 300)
    except NetworkError as error:
        pytest.skip(str(error))
    code = (
        "import socket, sys, time\nbegan = time.monotonic()\n"
        "try: socket.create_connection((sys.argv[1], 4000))\nexcept OSError: print(time.monotonic() - began)"
    )
    assert float(python(net.nodes[1], code, net.nodes[0].address).communicate()[0]) >= 0.3


def test_a_limited_link_takes_its_time(network):
    net = network(2)
    try:
        net.limit(net.nodes[0], 1000)
    except NetworkError as error:
        pytest.skip(str(error))
    code = (
        "import socket, time\nserver = socket.create_server(('0.0.0.0', 4000))\nprint('ready', flush=True)\n"
        "connection, _ = server.accept()\nbegan = time.monotonic()\n"
        "while connection.recv(65536): pass\nprint(time.monotonic() - began)"
    )
    served = python(net.nodes[0], code)
    assert served.stdout.readline() == "ready\n"
    send = "import socket, sys\nsocket.create_connection((sys.argv[1], 4000)).sendall(bytes(100_000))"
    python(net.nodes[1], send, net.nodes[0].address)
    assert float(served.communicate()[0]) > (100_000 - 16_384) * 8 / 1e6 / 2


def test_nothing_is_left_at_the_end():
    with Network(2) as net:
        node = net.nodes[0]
        # Deaf, stopped, and a grandchild in a session of its own.
        code = (
            "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "parent = os.fork()\n"
            "if not parent: os.setsid()\n"
            "os.write(1, b'%d\\n' % os.getpid())\n"  # in one piece: both write to one pipe
            "if parent: signal.pause()\n"
            "os.kill(os.getpid(), signal.SIGSTOP)"
        )
        program = python(node, code)
        pids = [int(program.stdout.readline()) for _ in range(2)]
        names = {node.namespace for node in net.nodes}
        assert names < _names()
    assert wait_for_end(pids) == []
    assert program.returncode == -signal.SIGKILL
    assert not names & _names()
    assert not os.path.exists(net._directory)
    net.close()


def test_nothing_is_left_of_a_network_that_could_not_be_made():
    net = Network(2)
    net.nodes[1].address = "no address"
    with pytest.raises(NetworkError, match="no address"):
        net.__enter__()
    assert not {name for name in _names() if name.startswith(net._name)}


MAKER = """
import signal, subprocess, sys
from network import Network
net = Network(1).__enter__()
program = net.nodes[0].run(["sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE)
program.stdout.readline()  # it has come into the network
print(program.pid, net.nodes[0].namespace, flush=True)
if sys.argv[1] == "killed":
    signal.pause()
"""


@pytest.fixture
def maker():
    """Starts a process that makes a network: it, a process in there, and the namespace's name."""
    made = []

    def start(how):
        support = os.path.dirname(sys.modules["network"].__file__)
        # The directory is found again by its name, which depends on this process's temporary directory.
        environment = {**os.environ, "PYTHONPATH": support, "TMPDIR": tempfile.gettempdir()}
        command = [sys.executable, "-W", "ignore", "-c", MAKER, how]
        made.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        pid, name = made[-1].stdout.readline().split()
        return made[-1], int(pid), name

    yield start
    for each in made:
        each.kill()
        each.wait(DEADLINE_S)
        each.stdout.close()
    with Network(1):  # removes what a failing test left
        pass


def test_nothing_is_left_when_the_maker_forgets_to_close_it(maker):
    process, pid, name = maker("forgetful")
    assert process.wait(DEADLINE_S) == 0
    assert wait_for_end([pid]) == []
    assert name not in _names()


def test_the_next_network_removes_what_a_killed_maker_left(maker):
    process, pid, name = maker("killed")
    process.kill()
    process.wait(DEADLINE_S)
    assert name in _names()
    with Network(1):
        assert wait_for_end([pid]) == []
        assert name not in _names()
        assert not os.path.exists(_directory(name.rpartition("-")[0]))


def test_a_number_of_nodes_that_cannot_be():
    for size in (0, 201):
        with pytest.raises(ValueError, match="1 to 200"):
            Network(size)


@pytest.mark.etcd
def test_an_etcd_cluster_on_nodes_of_its_own(network, tmp_path):
    net = network(4)
    place = Etcd(net, tmp_path)
    try:
        assert place.endpoint == "10.77.0.2:2379,10.77.0.3:2379,10.77.0.4:2379"
        leader = place.cluster.leader()
        place.lose_leader()
        assert net.nodes[1 + leader].pids() == []
        assert [len(node.pids()) for node in net.nodes[1:]].count(1) == 2
    finally:
        place.close()


def test_programs_that_have_only_just_been_started_are_ended_too():
    for _ in range(20):
        with Network(1) as net:
            program = net.nodes[0].run(["sleep", "1000"])
        assert program.returncode == -signal.SIGKILL
