"""The relay in front of the store: real sockets on loopback."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import closing

import pytest
from chaos.relay import RelayControl

DEADLINE_S = 30.0
HOST = "127.0.0.1"


class ThisMachine:
    """A node of a network, as far as the relay needs one."""

    address = HOST

    def __init__(self):
        self.started = []

    def run(self, command, **options):
        self.started.append(subprocess.Popen([str(word) for word in command], **options))
        return self.started[-1]


@pytest.fixture
def server():
    with closing(socket.create_server((HOST, 0))) as server:
        server.settimeout(DEADLINE_S)
        yield server


@pytest.fixture
def relay(server):
    machine = ThisMachine()
    with closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    control = RelayControl(machine, port, f"{HOST}:{server.getsockname()[1]}")
    control.port = port
    yield control
    process = machine.started[0]
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def connect(relay):
    return socket.create_connection((HOST, relay.port), timeout=DEADLINE_S)


def test_it_forwards_both_ways_and_passes_on_the_end(relay, server):
    with connect(relay) as client:
        there, _ = server.accept()
        with there:
            client.sendall(b"question")
            assert there.recv(100) == b"question"
            there.sendall(b"answer")
            assert client.recv(100) == b"answer"
        assert client.recv(100) == b""


def test_connections_are_reset_on_both_sides_and_new_ones_refused_until_that_is_over(relay, server):
    with connect(relay) as client:
        there, _ = server.accept()
        relay.disturb([HOST], refuse_s=3600.0)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
        with there, pytest.raises(ConnectionResetError):
            there.recv(100)
    with pytest.raises(ConnectionResetError), connect(relay) as client:
        client.recv(100)
    relay.disturb([HOST], refuse_s=0.0)
    with connect(relay) as client:
        there, _ = server.accept()
        with there:
            client.sendall(b"again")
            assert there.recv(100) == b"again"


def test_new_connections_are_forwarded_late(relay, server):
    began = time.monotonic()
    relay.disturb([HOST], delay_s=0.5)
    with connect(relay) as client:
        client.sendall(b"question")
        there, _ = server.accept()
        with there:
            assert time.monotonic() - began >= 0.5
            assert there.recv(100) == b"question"


def test_other_clients_are_left_alone(relay, server):
    with connect(relay) as client:
        there, _ = server.accept()
        with there:
            relay.disturb(["10.77.0.9"], refuse_s=3600.0)
            client.sendall(b"still here")
            assert there.recv(100) == b"still here"


def test_it_refuses_while_nobody_serves_and_serves_again_with_the_next(relay, server):
    address = server.getsockname()
    server.close()
    refused = False
    deadline = time.monotonic() + DEADLINE_S
    while not refused and time.monotonic() < deadline:
        try:
            connect(relay).close()
        except ConnectionRefusedError:
            refused = True
        except ConnectionResetError:
            continue
    assert refused
    with closing(socket.create_server(address)) as again:
        again.settimeout(DEADLINE_S)
        again.accept()[0].close()  # its look whether somebody is there
        while True:
            try:
                client = connect(relay)
            except ConnectionRefusedError:
                time.sleep(0.01)  # it is about to listen
            else:
                break
        with client:
            there, _ = again.accept()
            there.close()
