from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from dripping_server import dripping_server
from embedded_server import ServerProcess
from etcd_cluster import Certificates

from holdfast.coordination.wire import THE_CONNECTION, Failed, Reason, encode, frame
from holdfast.rendezvous.listener import Kind, identify, speaks_tls

HOST = "127.0.0.1"
TORCH = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


class Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"etcdserver":"3.4.23"}' if self.path == "/version" and self.server.is_etcd else b"hello")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def web_server(*, is_etcd=False, tls=None):
    with http.server.ThreadingHTTPServer((HOST, 0), Quiet) as server:
        server.is_etcd = is_etcd
        if tls is not None:
            # The handshake is the handler's, so that one client does not hold up the next.
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def speaker(greeting):
    """Says one thing to whoever connects."""
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.sendall(greeting)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_holdfasts_store_is_known_by_its_greeting():
    with ServerProcess() as server:
        assert identify(*server.address).kind is Kind.HOLDFAST


def test_holdfasts_store_is_known_by_its_refusal():
    """It does not greet other users of its machine."""
    with speaker(frame(THE_CONNECTION, encode(Failed(Reason.REFUSED, "the store belongs to user 1000")))) as port:
        assert identify(HOST, port).kind is Kind.HOLDFAST


@pytest.mark.torch
def test_torchs_store_is_known():
    with subprocess.Popen(
        [sys.executable, "-c", TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert identify(HOST, int(process.stdout.readline())).kind is Kind.TORCH
        finally:
            process.kill()


def test_a_web_server_is_known_and_so_is_etcds():
    with web_server() as port, web_server(is_etcd=True) as etcd_port, ThreadPoolExecutor() as pool:
        web, etcd = (pool.submit(identify, HOST, one) for one in (port, etcd_port))
        assert web.result() == (Kind.HTTP, "HTTP/1.0 200 OK")
        assert etcd.result().kind is Kind.ETCD
        assert not speaks_tls(HOST, port)


def test_what_speaks_tls_is_known(tmp_path):
    certificates = Certificates(tmp_path, [HOST])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_cert, certificates.server_key)
    with web_server(tls=context) as port:
        assert speaks_tls(HOST, port)
        assert identify(HOST, port).kind is Kind.TLS


def test_something_else_is_quoted():
    with speaker(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        assert identify(HOST, port) == (Kind.OTHER, "SSH-2.0-OpenSSH_9.2")
    with speaker(b"\0\0\0\1\0\0\0\0\x1b") as port:
        assert identify(HOST, port) == (Kind.OTHER, r"\x00\x00\x00\x01\x00\x00\x00\x00\x1b")


def test_what_hangs_up_or_says_nothing_is_silent(monkeypatch):
    monkeypatch.setattr("holdfast.rendezvous.listener.ANSWER_MAX_S", 0.1)
    with speaker(b"") as port:
        assert identify(HOST, port).kind is Kind.SILENT
    with socket.create_server((HOST, 0)) as listener:
        assert identify(HOST, listener.getsockname()[1]).kind is Kind.SILENT
    assert identify(HOST, port).kind is Kind.SILENT  # it is gone


def test_what_never_ends_its_answer_is_judged_by_the_beginning(monkeypatch):
    monkeypatch.setattr("holdfast.rendezvous.listener.ANSWER_MAX_S", 0.5)
    with dripping_server(b"HTTP/1.1 200 OK\r\nServer: ", b"x", 0.2) as port:
        assert identify(HOST, port).kind is Kind.HTTP
