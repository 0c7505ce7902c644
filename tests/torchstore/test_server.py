"""Where the server listens, and what it leaves behind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys

import pytest
from liveness import quiet_footprint, settle
from store_peer import StorePeer, get, ping, set_, text, wait

from holdfast.torchstore import TorchStoreServer


@pytest.fixture
def server():
    with TorchStoreServer("127.0.0.1") as server:
        server.start()
        yield server


# Listening


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.3", "127.0.0.3"),
        ("localhost", "localhost"),
        ("::1", "::1"),
        ("0.0.0.0", "127.0.0.5"),
        ("::", "127.0.0.5"),
        ("::", "::1"),
        ("", "127.0.0.5"),
    ],
)
def test_it_listens_on_the_address_it_was_given(host, reached):
    with TorchStoreServer(host) as server:
        server.start()
        with StorePeer(server.port, reached) as peer:
            assert peer.ask(set_(b"k", b"v"), get(b"k")) == text(b"v")


def test_it_listens_on_no_other_address():
    with TorchStoreServer("127.0.0.3") as server:
        server.start()
        with pytest.raises(ConnectionRefusedError):
            StorePeer(server.port, "127.0.0.1")


def test_a_port_that_is_taken_is_an_error_that_says_which(server):
    with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1, port {server.port}: Address already") as raised:
        TorchStoreServer("127.0.0.1", server.port)
    assert raised.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_an_error_that_says_which(host):
    with pytest.raises(OSError, match=rf"cannot listen on {host}, port 0"):
        TorchStoreServer(host)


def test_a_port_can_be_used_again_at_once(server):
    with StorePeer(server.port) as peer:
        peer.ask()
        server.stop()
        with TorchStoreServer("127.0.0.1", server.port) as next_one:
            next_one.start()
            with StorePeer(server.port) as again:
                assert again.ask(get(b"k")) == text(b"")


def test_who_connects_before_the_start_is_answered_after_it():
    with TorchStoreServer("127.0.0.1") as server, StorePeer(server.port) as peer:
        peer.send(set_(b"k", b"v"), get(b"k"))
        server.start()
        assert peer.read(9) == text(b"v")


def test_each_server_has_keys_of_its_own(server):
    with TorchStoreServer("127.0.0.1") as other:
        other.start()
        with StorePeer(server.port) as one, StorePeer(other.port) as two:
            one.ask(set_(b"k", b"v"))
            assert two.ask(get(b"k")) == text(b"")


# The end


def test_nothing_is_left_after_stop():
    before = quiet_footprint()
    server = TorchStoreServer("127.0.0.1")
    server.start()
    with StorePeer(server.port) as one, StorePeer(server.port) as two, StorePeer(server.port, greets=False):
        one.ask(set_(b"k", b"v"))
        two.ask(wait(b"other"))
        server.stop()
        assert one.is_ended()
        assert two.is_ended()
    server.stop()
    settle(before)


def test_a_server_that_was_never_started_leaves_nothing():
    before = quiet_footprint()
    server = TorchStoreServer("127.0.0.1")
    with StorePeer(server.port) as peer:
        server.stop()
        assert peer.is_ended()
    server.stop()
    settle(before)


def test_stop_does_not_wait_for_clients_that_do_not_read(server):
    with StorePeer(server.port) as peer:
        peer.ask(set_(b"k", b"x" * (64 << 20)))
        peer.send(get(b"k"))
        peer.read(8)
        server.stop()


FORK_AFTER_STOP = """
import os
from holdfast.torchstore import TorchStoreServer
from store_peer import StorePeer
server = TorchStoreServer("127.0.0.1")
server.start()
server.stop()
pid = os.fork()  # newer Pythons warn if there is another thread
if not pid:
    with TorchStoreServer("127.0.0.1", server.port) as own:
        own.start()
        with StorePeer(own.port) as peer:
            peer.ask()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_the_process_can_fork_after_stop():
    run_alone("-W", "error", "-c", FORK_AFTER_STOP)


def run_alone(*words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, *words], check=True, timeout=120, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout


CHILD_OF_A_SERVER = """
import os, socket, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of forks with threads, which is what this is about
from holdfast.torchstore import TorchStoreServer
from store_peer import StorePeer
server = TorchStoreServer("127.0.0.1")
server.start()
peer = StorePeer(server.port)
peer.ask()
server_port = server.port
pid = os.fork()
if not pid:
    ports = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            ports.append(socket.socket(fileno=os.dup(int(fd))).getsockname()[1])
        except OSError:
            pass  # not a socket, or what listed the others
    os._exit(server_port in ports or len(ports) != 1)  # the peer's own is there, and no other
assert os.waitpid(pid, 0)[1] == 0
peer.ask()
"""


def test_a_child_that_is_forked_meanwhile_has_neither_the_port_nor_the_clients():
    run_alone("-c", CHILD_OF_A_SERVER)


def test_a_child_that_stops_its_copy_leaves_the_port_to_its_parent():
    with TorchStoreServer("127.0.0.1") as server:
        pid = os.fork()
        if not pid:
            server.stop()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        server.start()
        with StorePeer(server.port) as peer:
            peer.ask()


def test_neither_port_nor_clients_wait_for_a_child_that_still_has_them(server):
    # As one has that was just forked, and has not run yet.
    with StorePeer(server.port) as peer, StorePeer(server.port, greets=False) as stranger:
        peer.ask()
        copies = [os.dup(fd) for fd in (server.fileno(), *list(server._loop._connections))]
        try:
            server.stop()
            assert peer.is_ended()
            assert stranger.is_ended()
            with TorchStoreServer("127.0.0.1", server.port) as next_one:
                next_one.start()
                with StorePeer(server.port) as again:
                    again.ask()
        finally:
            for fd in copies:
                os.close(fd)


# Its place in the process


def test_a_port_is_reserved_without_costly_imports():
    code = (
        "import sys; from holdfast.torchstore import TorchStoreServer; TorchStoreServer('127.0.0.1').stop();"
        "print({'threading', 'selectors', 'socket', 'select', 'asyncio', 'logging', 'signal'} & set(sys.modules))"
    )
    assert run_alone("-S", "-c", code) == "set()\n"


def test_its_thread_takes_no_signals(server):
    with StorePeer(server.port) as peer:
        peer.ask()
    with open(f"/proc/self/task/{server._thread.native_id}/status") as file:
        (blocked,) = [int(line.split()[1], 16) for line in file if line.startswith("SigBlk:")]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM):
        assert blocked >> (number - 1) & 1
    assert not blocked >> (signal.SIGSEGV - 1) & 1
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_replies_are_not_held_back_to_fill_packets(server):
    with socket.create_connection(("127.0.0.1", server.port)):
        (connection,) = _connections(server, 1)
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def _connections(server, count):
    with StorePeer(server.port) as peer:
        peer.ask(ping(1))
        return list(server._loop._connections.values())[:count]
