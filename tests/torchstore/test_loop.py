"""Many clients, silent ones, and more than there are descriptors."""

from __future__ import annotations

import os
import queue
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from store_peer import GREETING, U32, StorePeer, get, ping, set_, text, wait
from store_torch import TorchProgram

from holdfast.torchstore import TorchStoreServer
from holdfast.torchstore import loop as loop_module
from holdfast.torchstore.access import Access
from holdfast.torchstore.door import ADMITTED, UNDECIDED


@pytest.fixture
def server():
    with TorchStoreServer("127.0.0.1") as server:
        server.start()
        yield server


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_one_key_wakes_hundreds(server):
    with ExitStack() as stack, StorePeer(server.port) as one:
        peers = [stack.enter_context(StorePeer(server.port)) for _ in range(200)]
        for peer in peers:
            peer.send(wait(b"go"))
        for peer in peers:
            assert peer.ask() == b""
        one.send(set_(b"go", b""))
        assert all(peer.read(1) == b"\0" for peer in peers)


@pytest.mark.torch
def test_a_thousand_silent_connections_and_noise_do_not_disturb_a_worker(many_descriptors):
    with TorchStoreServer("127.0.0.1") as server, ExitStack() as stack:
        server.start()
        worker = stack.enter_context(TorchProgram("steady", str(server.port)))
        assert worker.answer() == "ready"
        for number in range(1000):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
            if number % 3 == 1:
                silent.sendall(GREETING[: number % 5])
            if number % 3 == 2:
                silent.sendall(GREETING + set_(b"never", b"whole")[: number % 20])
            with StorePeer(server.port, greets=False) as noisy:
                noisy.send(os.urandom(50))
        worker.end_of_input()
        assert worker.answer() is True


def test_silent_strangers_make_room_for_others(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    monkeypatch.setattr(loop_module, "GREETING_MAX_S", 0.0)
    with TorchStoreServer("127.0.0.1") as server, ExitStack() as stack:
        server.start()
        strangers = [stack.enter_context(StorePeer(server.port, greets=False)) for _ in range(30)]
        with StorePeer(server.port) as peer:
            assert peer.ask(ping(1)) == U32.pack(1)
        assert strangers[0].is_ended()
        strangers[-1].send(GREETING)
        assert strangers[-1].ask(ping(2)) == U32.pack(2)


def test_who_finds_no_room_gets_it_when_another_leaves(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    monkeypatch.setattr(loop_module, "ACCEPT_PAUSE_S", 3600.0)
    with TorchStoreServer("127.0.0.1") as server, ExitStack() as stack:
        server.start()
        peers = [stack.enter_context(StorePeer(server.port)) for _ in range(30)]
        for peer in peers:
            peer.ask()
        with StorePeer(server.port) as late:
            late.send(ping(9))
            for peer in peers:
                peer.ask()
            assert len(server._loop._connections) == 30
            peers[0].close()
            assert late.read(4) == U32.pack(9)


def test_one_machine_does_not_take_all_connections(monkeypatch, caplog):
    """Idle clients that have greeted, as a worker does that has nothing to ask."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    with TorchStoreServer("0.0.0.0") as server, ExitStack() as stack:
        server.share(5)
        server.start()
        greedy = []
        for _ in range(40):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60, ("127.0.0.2", 0)))
            with suppress(OSError):
                peer.sendall(GREETING)
            greedy.append(peer)
        workers = [stack.enter_context(StorePeer(server.port)) for _ in range(10)]
        for worker in workers:
            assert worker.ask(ping(1)) == U32.pack(1)
        greedy[0].sendall(ping(7))
        assert greedy[0].recv(4) == U32.pack(7)
        assert len(server._loop._connections) == 30
        greedy[0].close()
        while len(server._loop._connections) == 30:
            workers[0].ask()
        with socket.create_connection(("127.0.0.1", server.port), 60, ("127.0.0.2", 0)) as again:
            again.sendall(GREETING + ping(8))
            assert again.recv(4) == U32.pack(8)
    told = [record.getMessage() for record in caplog.records if record.name == "holdfast.torchstore"]
    (line,) = told
    assert line == (
        "the workers' store refuses clients: it has no room for more than 20 connections from 127.0.0.2; "
        "raise the limit of open files where the agent is started (ulimit -n)"
    )


@pytest.mark.parametrize(
    ("connections_max", "workers", "most"),
    [(65_472, 1000, 63_472), (960, 16, 928), (960, 400, 800), (960, 480, 960), (960, 10_000, 960), (960, 0, 960)],
)
def test_an_address_has_room_for_every_worker_and_leaves_as_much(connections_max, workers, most):
    assert loop_module.address_max(connections_max, workers) == most


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from holdfast.torchstore import TorchStoreServer
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
server = TorchStoreServer("127.0.0.1")
server.start()
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for fd in taken[:4]:
    os.close(fd)
print(server.port, flush=True)
sys.stdin.readline()
for fd in taken[4:12]:
    os.close(fd)
print("more", flush=True)
sys.stdin.readline()
server.stop()
"""


def serving(program):
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_who_finds_no_descriptor_is_turned_away_and_that_is_said_once():
    process = serving(WITHOUT_DESCRIPTORS)
    with ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        port = int(process.stdout.readline())
        there = [stack.enter_context(StorePeer(port)) for _ in range(4)]
        for peer in there:
            peer.ask()
        before = cpu_s(process.pid)
        for _ in range(2):
            late = [stack.enter_context(StorePeer(port)) for _ in range(4)]
            assert all(peer.is_ended() for peer in late)
        assert cpu_s(process.pid) - before < 0.7
        assert there[0].ask(set_(b"k", b"v"), get(b"k")) == text(b"v")
        process.stdin.write("more\n")
        process.stdin.flush()
        assert process.stdout.readline() == "more\n"
        for _ in range(4):
            peer = stack.enter_context(StorePeer(port))
            assert peer.ask(ping(1)) == U32.pack(1)
        _, messages = process.communicate("end\n", timeout=60)
    assert process.returncode == 0
    assert messages.count("raise the limit where the agent is started (ulimit -n)") == 1
    assert "refuses clients" in messages
    assert "Traceback" not in messages


LOW_LIMIT = """
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
from holdfast.torchstore import TorchStoreServer
server = TorchStoreServer("127.0.0.1")
server.start()
print(server.port, flush=True)
sys.stdin.readline()
"""


def test_a_soft_limit_of_a_thousand_is_no_limit_of_clients(many_descriptors):
    process = serving(LOW_LIMIT)
    with ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        port = int(process.stdout.readline())
        peers = [stack.enter_context(StorePeer(port)) for _ in range(1100)]
        for peer in (peers[0], peers[959], peers[960], peers[-1]):
            assert peer.ask(ping(7)) == U32.pack(7)


@pytest.mark.torch
def test_a_client_of_torch_that_is_turned_away_gives_up():
    """It tries again until its timeout is over; while it was left waiting, it waited for ever."""
    process = serving(WITHOUT_DESCRIPTORS)
    with ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        port = int(process.stdout.readline())
        there = [stack.enter_context(StorePeer(port)) for _ in range(4)]
        for peer in there:
            peer.ask()
        client = (
            "import datetime, sys; from torch.distributed import TCPStore; "
            "TCPStore('127.0.0.1', int(sys.argv[1]), is_master=False, timeout=datetime.timedelta(seconds=3))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", client, str(port)], capture_output=True, text=True, check=False, timeout=60
        )
        assert ended.returncode == 1
        assert "DistNetworkError" in ended.stderr


def test_a_mistake_of_ours_ends_one_connection_only(server, monkeypatch, caplog):
    with StorePeer(server.port) as peer, StorePeer(server.port) as other:
        peer.ask()
        other.ask()

        def fail(*_):
            raise RuntimeError("a mistake")

        table = list(server._loop._keyspace.operations)
        table[7] = fail
        server._loop._keyspace.operations = tuple(table)
        with caplog.at_level("ERROR", "holdfast.torchstore"):
            other.send(b"\x07")
            assert other.is_ended()
        assert "bug in holdfast" in caplog.text
        assert peer.ask(ping(4)) == U32.pack(4)


def test_bad_bytes_are_one_line_for_who_debugs(server, caplog):
    with caplog.at_level("DEBUG", "holdfast.torchstore"):
        with StorePeer(server.port, greets=False) as noisy:
            noisy.send(b"GET / HTTP/1.1\r\n\r\n")
            assert noisy.is_ended()
        (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert "127.0.0.1" in record.getMessage()
    assert "operation 71 where torch's clients greet" in record.getMessage()


def test_a_stop_that_comes_while_it_reads_its_wake_up_is_not_lost(server, monkeypatch):
    real = os.eventfd_read

    def stopped_meanwhile(fd):
        server._loop.is_over = True
        os.eventfd_write(fd, 1)
        return real(fd)

    thread = server._thread
    with monkeypatch.context() as patch:
        patch.setattr(loop_module.os, "eventfd_read", stopped_meanwhile)
        server.admit(frozenset())  # any wake-up
        thread.join(20)
        is_lost = thread.is_alive()
    assert not is_lost


def test_addresses_that_are_admitted_while_a_client_is_judged_count_for_it():
    class Peers(frozenset):
        """Addresses that are out of date while somebody looks at them."""

        def __contains__(self, address):
            telling = threading.Thread(target=server.admit, args=(frozenset((address,)),))
            telling.start()
            telling.join()
            return False

    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener, TorchStoreServer("127.0.0.1") as server:
        server.access = Access(peers=Peers(), find_peers=lambda: asked.append(1))
        server.start()
        judge = server._loop._door.judge
        verdicts = queue.Queue()

        def from_elsewhere(_connected, _name):
            verdict = judge(listener, ("198.51.100.7", 5))
            verdicts.put(verdict)
            return verdict

        server._loop._door.judge = from_elsewhere
        with StorePeer(server.port) as peer:
            assert peer.ask(ping(4)) == U32.pack(4)
        assert [verdicts.get(), verdicts.get()] == [UNDECIDED, ADMITTED]
    assert asked == [1]


def test_it_does_not_wake_up_while_nothing_happens(server):
    with StorePeer(server.port) as peer:
        peer.ask(wait(b"never"))
        turns = []
        real = server._loop._turn
        server._loop._turn = lambda: turns.append(1) or real()
        peer.ask(ping(1))
        woken = len(turns)
        time.sleep(0.3)  # no event tells that nothing happens
        assert len(turns) <= woken + 1
