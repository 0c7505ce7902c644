"""Whose socket is at the other end, whatever that other end does to look like somebody else's."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys

import pytest
from network import Network
from other_users import ALICE, MALLORY, as_user

from holdfast import netlink, socket_owners
from holdfast.socket_owners import Owners, end_of

PLACES = {
    "IPv4": (socket.AF_INET, "127.0.0.1", socket.AF_INET, "127.0.0.1"),
    "another loopback address": (socket.AF_INET, "127.0.0.1", socket.AF_INET, "127.9.8.7"),
    "any IPv4": (socket.AF_INET, "0.0.0.0", socket.AF_INET, "127.0.0.1"),
    "IPv6": (socket.AF_INET6, "::1", socket.AF_INET6, "::1"),
    "any IPv6": (socket.AF_INET6, "::", socket.AF_INET6, "::1"),
    "IPv4 at IPv6": (socket.AF_INET6, "::", socket.AF_INET, "127.0.0.1"),
    "IPv4 from IPv6 at IPv6": (socket.AF_INET6, "::", socket.AF_INET6, "::ffff:127.0.0.1"),
    "IPv4 from IPv6": (socket.AF_INET, "127.0.0.1", socket.AF_INET6, "::ffff:127.0.0.1"),
}


@pytest.fixture(params=["netlink", "table"])
def way(request, monkeypatch):
    """Both ways to ask: the second is for where there is no netlink."""
    if request.param == "table":
        monkeypatch.setattr(socket_owners, "Kernel", refuse)
    return request.param


def refuse(_):
    raise PermissionError("no netlink in this sandbox")


class Listener:
    """A socket that listens, and who asks about its connections."""

    def __init__(self, family=socket.AF_INET, host="127.0.0.1"):
        self.socket = socket.create_server((host, 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
        self.port = self.socket.getsockname()[1]
        self.owners = Owners(self.socket)

    def accept(self):
        self.accepted, self.name = self.socket.accept()

    def user(self):
        return self.owners.user_at(self.accepted, self.name)

    def close(self):
        self.owners.close()
        self.socket.close()
        self.accepted.close()


@pytest.fixture
def listener(way):
    made = []

    def make(*words):
        made.append(Listener(*words))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("place", PLACES)
def test_our_own_connections_are_ours(listener, place):
    family, host, client_family, reached = PLACES[place]
    server = listener(family, host)
    assert server.owners.can_tell
    with socket.socket(client_family) as client:
        if place == "another loopback address":
            client.bind((reached, 0))
            reached = host
        client.connect((reached, server.port))
        server.accept()
        assert server.user() == os.geteuid()


@pytest.mark.root
@pytest.mark.parametrize("place", PLACES)
def test_a_socket_is_of_the_user_who_made_it(listener, place):
    family, host, client_family, reached = PLACES[place]
    server = listener(family, host)
    with as_user(MALLORY):
        client = socket.socket(client_family)
    with client:
        client.connect(("127.0.0.1" if place == "another loopback address" else reached, server.port))
        server.accept()
        assert server.user() == MALLORY


@pytest.mark.root
def test_who_has_only_ended_what_it_says_still_has_an_owner(listener):
    server = listener()
    with as_user(MALLORY):
        client = socket.socket()
    with client:
        client.connect(("127.0.0.1", server.port))
        client.shutdown(socket.SHUT_WR)
        server.accept()
        assert server.user() == MALLORY


@pytest.mark.root
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_socket_that_is_closed_is_nobodys_although_the_kernel_says_roots(listener, how):
    server = listener()
    with as_user(MALLORY):
        client = socket.socket()
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"words that can still be read")
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    server.accept()
    assert server.user() is None
    assert server.accepted.recv(100) == b"words that can still be read"


@pytest.mark.root
def test_a_port_that_was_given_to_another_user_meanwhile_proves_nothing(listener):
    """Mallory's connection is reset, and Alice's has the same addresses and ports, before the kernel is asked."""
    server = listener()
    with as_user(MALLORY):
        client = socket.socket()
    client.bind(("127.0.0.1", 0))  # a port that nothing else has, as `connect` would choose one
    client.connect(("127.0.0.1", server.port))
    port = client.getsockname()[1]
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.accept()
    client.close()
    with as_user(ALICE):
        heir = socket.socket()
    with heir:
        heir.bind(("127.0.0.1", port))
        heir.connect(("127.0.0.1", server.port))
        assert server.user() is None
        server.accepted.close()
        server.accept()
        assert server.user() == ALICE


@pytest.mark.root
def test_a_socket_that_listens_where_the_other_end_was_proves_nothing(listener):
    server = listener()
    with as_user(MALLORY):
        client = socket.socket()
    client.bind(("127.0.0.1", 0))
    client.connect(("127.0.0.1", server.port))
    port = client.getsockname()[1]
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.accept()
    client.close()
    with socket.create_server(("127.0.0.1", port)):
        assert server.user() is None


@pytest.mark.root
def test_a_client_sees_whose_socket_was_accepted_and_nobodys_before(way):
    """Who listens may be another one than who accepts."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        asked = Owners(client)
        assert asked.can_tell
        assert asked.user_at(client, client.getpeername()) is None
        with as_user(MALLORY):
            accepted, _ = server.accept()
        with accepted:
            assert asked.user_at(client, client.getpeername()) == MALLORY
        asked.close()


def test_where_nothing_can_be_asked_nobody_can_tell(monkeypatch):
    monkeypatch.setattr(socket_owners, "Kernel", refuse)
    monkeypatch.setattr(socket_owners, "_TABLES", {4: "/proc/self/net/none", 16: "/proc/self/net/none"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not Owners(server).can_tell


def test_a_kernel_that_finds_not_even_who_listens_is_not_asked(monkeypatch):
    """One that has netlink and was built without the part about TCP says that there is no such socket."""

    def find_nothing(*_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(netlink.Kernel, "ask", find_nothing)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        asked = Owners(server)
        accepted, name = server.accept()
        with accepted:
            assert asked.user_at(accepted, name) == os.geteuid()
        asked.close()
        assert client.fileno() > 0


@pytest.mark.parametrize(
    ("user", "namespace", "can_tell"),
    [
        (65_534, "0 0 4294967295\n", True),
        (65_534, "0 1000 1\n", False),
        (65_534, "", False),
        (1000, "0 1000 1\n", True),
    ],
)
def test_nobody_of_a_user_namespace_cannot_tell_others_from_himself(monkeypatch, tmp_path, user, namespace, can_tell):
    (tmp_path / "map").write_text(namespace)
    monkeypatch.setattr(socket_owners, "NAMESPACE_FILE", str(tmp_path / "map"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = Owners(server)
        assert asked.can_tell is can_tell
        asked.close()


IN_NAMESPACE = """
import ctypes, os, socket, sys
from holdfast.socket_owners import Owners
assert ctypes.CDLL(None).unshare(0x10000000) == 0, "no user namespace"
print("unshared", flush=True)
sys.stdin.readline()
os.setuid(0)
server = socket.create_server(("127.0.0.1", 0))
owners = Owners(server)
print(server.getsockname()[1], os.geteuid(), flush=True)
while True:
    accepted, name = server.accept()
    print(owners.user_at(accepted, name), flush=True)
"""


@pytest.mark.root
def test_in_a_user_namespace_those_outside_of_it_are_nobody():
    """As root of the namespace, who is ALICE elsewhere."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", IN_NAMESPACE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        try:
            assert process.stdout.readline() == "unshared\n"
            with open(f"/proc/{process.pid}/uid_map", "w") as file:
                file.write(f"0 {ALICE} 1")
            process.stdin.write("mapped\n")
            process.stdin.flush()
            port, seen = process.stdout.readline().split()
            assert seen == "0"
            users = []
            for user in (ALICE, MALLORY, 0):
                with as_user(user):
                    client = socket.socket()
                with client:
                    client.connect(("127.0.0.1", int(port)))
                    users.append(process.stdout.readline().strip())
            assert users == ["0", "65534", "65534"]
        finally:
            process.kill()


AT_OWN_ADDRESS = """
import os, socket, sys
from holdfast.socket_owners import Owners
for host in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.create_server((host, 0), family=family)
    owners = Owners(server)
    os.seteuid(54322)
    client = socket.socket(family)
    os.seteuid(0)
    client.connect(server.getsockname()[:2])
    accepted, name = server.accept()
    assert name[0] == host, name
    assert owners.user_at(accepted, name) == 54322, owners.user_at(accepted, name)
"""


@pytest.mark.root
def test_a_machine_that_connects_to_its_own_address_is_known_there():
    with Network(1) as network:
        (node,) = network.nodes
        command = [sys.executable, "-c", AT_OWN_ADDRESS, node.address, node.address6]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        assert node.run(command, env=environment).wait(60) == 0


def test_an_ipv4_address_is_one_in_all_its_forms():
    assert end_of(("10.0.0.1", 5)) == end_of(("::ffff:10.0.0.1", 5, 0, 0)) == (b"\x0a\0\0\1", 5, 0)
    assert end_of(("fe80::1%eth0", 5, 0, 3)) == (b"\xfe\x80" + bytes(13) + b"\1", 5, 3)
