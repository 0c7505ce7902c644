"""Who is let in to the store, and that people are told of those who are not."""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import ExitStack, suppress

import pytest
from network import Network
from other_users import ALICE, MALLORY, as_user
from store_peer import GREETING, U32, StorePeer, get, ping, set_, text

from holdfast import socket_owners
from holdfast.torchstore import TorchStoreServer
from holdfast.torchstore import door as door_module
from holdfast.torchstore.access import Access
from holdfast.torchstore.door import ADMITTED, REFUSED, UNDECIDED, Door
from holdfast.torchstore.telling import TOLD_MAX, Teller


@pytest.fixture
def start():
    with ExitStack() as stack:

        def start(host="127.0.0.1", access=None):
            server = stack.enter_context(TorchStoreServer(host, access=access))
            server.start()
            return server

        yield start


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "holdfast.torchstore"]


# Users of this machine


@pytest.mark.root
@pytest.mark.parametrize(
    ("host", "reached"), [("127.0.0.1",) * 2, ("::1",) * 2, ("::", "127.0.0.1"), ("", "127.0.0.5")]
)
def test_another_user_of_the_machine_neither_reads_nor_changes_keys(start, caplog, host, reached):
    server = start(host)
    with StorePeer(server.port, reached) as worker:
        worker.ask(set_(b"key", b"secret"))
        with as_user(MALLORY):
            thief = StorePeer(server.port, reached, greets=False)
        with thief:
            with suppress(OSError):  # it may be too late for that
                thief.send(GREETING, set_(b"key", b"changed"), get(b"key"))
            assert thief.is_ended()
        assert worker.ask(get(b"key")) == text(b"secret")
    (line,) = told(caplog)
    assert line == (
        f"the workers' store refuses user {MALLORY} of this machine, because the store belongs to user 0; if workers "
        f"of this job run as user {MALLORY}, let them in: --rdzv-conf store_users={MALLORY}"
    )


@pytest.mark.root
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_what_another_user_says_and_closes_at_once_changes_nothing(how):
    """The server finds the words of a socket that is nobody's any more, of which the kernel says that it is root's."""
    with TorchStoreServer("127.0.0.1") as server:
        for number in range(20):
            with as_user(MALLORY):
                thief = socket.create_connection(("127.0.0.1", server.port))
            thief.sendall(GREETING + set_(b"key%d" % number, b"changed"))
            if how == "reset":
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            thief.close()
        server.start()
        with StorePeer(server.port) as worker:
            assert worker.ask(*(get(b"key%d" % number) for number in range(20))) == text(b"") * 20


@pytest.mark.root
def test_the_user_who_serves_and_root_are_let_in(start):
    with as_user(ALICE):
        server = start()
        worker = StorePeer(server.port)
    with worker, StorePeer(server.port) as root:
        assert worker.ask(ping(1)) == U32.pack(1)
        assert root.ask(ping(2)) == U32.pack(2)
        with as_user(MALLORY):
            thief = StorePeer(server.port, greets=False)
        with thief:
            assert thief.is_ended()


@pytest.mark.root
@pytest.mark.parametrize("users", [frozenset((ALICE,)), None])
def test_users_who_were_named_are_let_in(start, caplog, users):
    server = start(access=Access(users))
    with as_user(ALICE):
        worker = StorePeer(server.port)
    with worker:
        assert worker.ask(ping(1)) == U32.pack(1)
    with as_user(MALLORY):
        other = StorePeer(server.port, greets=False)
    with other:
        if users is None:
            other.send(GREETING)
            assert other.ask(ping(1)) == U32.pack(1)
        else:
            assert other.is_ended()
    assert len(told(caplog)) == (users is not None)


@pytest.mark.root
def test_a_user_who_comes_again_and_again_is_told_of_once(start, caplog):
    server = start()
    for user in (MALLORY, ALICE):
        for _ in range(20):
            with as_user(user):
                thief = StorePeer(server.port, greets=False)
            with thief:
                assert thief.is_ended()
    assert len(told(caplog)) == 2


def test_of_many_strangers_few_are_told_of(caplog):
    teller = Teller()
    for number in range(1000):
        teller.tell(number, "stranger %d", number)
    assert len(told(caplog)) == TOLD_MAX


def test_where_the_kernel_does_not_tell_users_apart_all_are_let_in_and_that_is_said(start, caplog, monkeypatch):
    def refuse(_):
        raise PermissionError("no netlink in this sandbox")

    monkeypatch.setattr(socket_owners, "Kernel", refuse)
    monkeypatch.setattr(socket_owners, "_TABLES", {4: "/proc/self/net/none", 16: "/proc/self/net/none"})
    server = start()
    for _ in range(3):
        with StorePeer(server.port) as worker:
            assert worker.ask(ping(1)) == U32.pack(1)
    (line,) = told(caplog)
    assert line.startswith("the kernel does not tell which user connects to the workers' store, so every user of")


def test_a_kernel_without_memory_for_an_answer_lets_nobody_in(start, monkeypatch):
    """What another user can bring about must not open the door."""
    server = start()

    def fail(*_):
        raise OSError(105, "No buffer space available")

    monkeypatch.setattr(socket_owners.Kernel, "ask", fail)
    with StorePeer(server.port, greets=False) as peer:
        assert peer.is_ended()
    monkeypatch.undo()
    with StorePeer(server.port) as peer:
        assert peer.ask(ping(1)) == U32.pack(1)


TRANSLATED = """
import socket, sys
sys.path[:0] = {path!r}
from holdfast.torchstore import TorchStoreServer
from store_peer import GREETING, StorePeer
from other_users import as_user, MALLORY
# The kernel does not find such a connection by the addresses that we see: its socket is bound to an interface.
server = TorchStoreServer(sys.argv[1])
server.start()
with as_user(MALLORY):
    client = socket.socket()
client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
client.connect((sys.argv[1], server.port))
try:
    client.sendall(GREETING)
    assert client.recv(1) == b"", "let in"
except ConnectionResetError:
    pass
"""


@pytest.mark.root
def test_a_connection_of_this_machine_that_nobody_here_has_is_refused_and_told_of():
    with Network(1) as network:
        (node,) = network.nodes
        code = TRANSLATED.format(path=sys.path)
        process = node.run([sys.executable, "-c", code, node.address], stderr=-1, text=True)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == 0, messages
        assert f"refuses a connection from {node.address}, an address of this machine, because no process" in messages
        assert "--rdzv-conf store_users=any" in messages


# Other machines. These are judged by their addresses alone, so none is needed.


def judge(access, *addresses):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(listener, access, Teller())
        try:
            return [door.judge(listener, (address, 5)) for address in addresses]
        finally:
            door.close()


def network(text):
    bits, _, length = text.partition("/")
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    packed = socket.inet_pton(family, bits)
    mask = (1 << len(packed) * 8) - (1 << len(packed) * 8 - int(length))
    return len(packed), int.from_bytes(packed), mask


MEMBERS = frozenset(socket.inet_aton(address) for address in ("203.0.113.1", "203.0.113.2"))


@pytest.mark.parametrize(
    ("access", "verdicts"),
    [
        (Access(), [ADMITTED] * 4),
        (Access(peers=MEMBERS), [ADMITTED, ADMITTED, REFUSED, REFUSED]),
        (Access(peers=frozenset()), [REFUSED] * 4),
        (Access(networks=(network("198.51.100.0/24"),)), [REFUSED, REFUSED, ADMITTED, REFUSED]),
        (Access(networks=(network("2001:db8::/32"),), peers=MEMBERS), [ADMITTED, ADMITTED, REFUSED, ADMITTED]),
        (Access(networks=None, peers=MEMBERS), [ADMITTED] * 4),
    ],
)
def test_addresses_of_the_job_and_those_that_were_named_are_let_in(access, verdicts):
    assert judge(access, "203.0.113.1", "::ffff:203.0.113.2", "198.51.100.7", "2001:db8::1") == verdicts


def test_an_address_that_is_refused_is_told_of_with_the_setting_that_lets_it_in(caplog):
    assert judge(Access(peers=MEMBERS), *("198.51.100.7",) * 5) == [REFUSED] * 5
    (line,) = told(caplog)
    assert line == (
        "the workers' store refuses 198.51.100.7, which is not an address of this job's machines; if one of them "
        "connects from there, let it in: --rdzv-conf store_peers=198.51.100.7 (or a network, or any)"
    )


def test_an_unknown_address_waits_until_the_job_s_are_known(monkeypatch):
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(listener, Access(peers=MEMBERS, find_peers=lambda: asked.append(1)), Teller())
        assert [door.judge(listener, (address, 5)) for address in ("198.51.100.7", "203.0.113.1", "198.51.100.8")] == [
            *(UNDECIDED, ADMITTED, UNDECIDED)
        ]
        door.admit(MEMBERS | {socket.inet_aton("198.51.100.7")})
        assert [door.judge(listener, (address, 5)) for address in ("198.51.100.7", "203.0.113.1", "198.51.100.8")] == [
            *(ADMITTED, ADMITTED, REFUSED)
        ]
        assert asked == [1]
        monkeypatch.setattr(door_module, "LOOK_EVERY_S", 0.0)
        door.admit(MEMBERS)
        assert door.judge(listener, ("198.51.100.8", 5)) is UNDECIDED
        assert asked == [1, 1]
        door.close()


def test_an_address_is_the_machine_s_own_also_where_routes_cannot_be_asked_for(monkeypatch):
    def refuse(_):
        raise PermissionError("no netlink in this sandbox")

    monkeypatch.setattr(door_module, "Kernel", refuse)
    assert judge(Access(users=None, peers=frozenset()), "127.0.0.9", "::1", "203.0.113.1") == [
        *(ADMITTED, ADMITTED, REFUSED)
    ]
