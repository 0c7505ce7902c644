from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest
from embedded_server import TOKEN, ServerProcess
from etcd_cluster import Certificates
from other_users import ALICE

from holdfast.coordination.blocking import LoopThread
from holdfast.coordination.handshake import VERSION, Greeting
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.tls import server_tls
from holdfast.coordination.wire import encode, frame
from holdfast.doctor.context import Meeting, TlsFiles
from holdfast.doctor.endpoint import (
    Facts,
    Introduction,
    Outcome,
    check,
    judge,
    judge_latency,
    judge_settings,
    probe,
)
from holdfast.doctor.finding import State
from holdfast.doctor.network import Attempt, Reach
from holdfast.rendezvous.listener import Kind, Listener

HOST = "127.0.0.1"
NODE = Meeting("c10d", (("node0", 29400),))


def meeting_at(address, **fields):
    return Meeting("c10d", (address,), **{"token": TOKEN, **fields})


def told(meeting):
    """The findings about a real endpoint, by their check."""
    return {finding.check: finding for finding in judge(probe(meeting))}


@pytest.fixture(scope="module")
def server():
    with ServerProcess() as process:
        yield process


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"), [HOST])


@pytest.fixture(scope="module")
def tls_server(certificates):
    """The address of a store that speaks TLS, and wants to see certificates."""
    context = server_tls(certificates.server_cert, certificates.server_key, certificates.ca_cert)
    loop = LoopThread()

    async def start():
        serving = EmbeddedServer(token=TOKEN, tls=context)
        await serving.start(HOST, 0)
        return serving

    serving = asyncio.run_coroutine_threadsafe(start(), loop.loop).result(60)
    yield HOST, serving.address[1]
    asyncio.run_coroutine_threadsafe(serving.close(), loop.loop).result(60)
    loop.close()


def own_tls(certificates):
    return TlsFiles(certificates.ca_cert, certificates.client_cert, certificates.client_key)


def test_a_store_with_our_token_is_good(server):
    found = told(meeting_at(server.address))
    assert {finding.state for finding in found.values()} == {State.OK}
    assert list(found) == ["reachable", "store", "latency"]


def test_a_store_with_another_token_is_a_problem_that_shows_no_token(server):
    found = told(meeting_at(server.address, token=b"hunter2"))["store"]
    assert found.state is State.PROBLEM
    assert "token is not that of the job" in found.what
    assert "HOLDFAST_TOKEN" in found.advice
    assert "hunter2" not in found.what + found.advice


@pytest.mark.root
def test_another_users_store_is_named():
    with ServerProcess(user=ALICE) as process:
        found = told(meeting_at(process.address))["store"]
        assert found.state is State.PROBLEM
        assert f"the store belongs to user {ALICE}" in found.what
        assert f"--rdzv-conf store_users={ALICE}+0" in found.advice
        assert told(meeting_at(process.address, users=frozenset({ALICE})))["store"].state is State.OK


def test_a_store_is_not_tried_with_settings_that_a_run_would_refuse(server):
    meeting = meeting_at(server.address, complaint="--rdzv-endpoint x: a token is needed; set HOLDFAST_TOKEN")
    assert told(meeting)["store"].state is State.SKIPPED
    (found,) = judge_settings(meeting)
    assert (found.state, found.advice) == (State.PROBLEM, "set HOLDFAST_TOKEN")


def test_tls_on_both_sides_is_good(tls_server, certificates):
    found = told(meeting_at(tls_server, tls=own_tls(certificates)))
    assert found["store"].what.endswith("accepts this token, over TLS")
    assert found["latency"].state is State.OK


def test_tls_on_one_side_is_named(server, tls_server, certificates):
    found = told(meeting_at(tls_server))["store"]
    assert "no TLS connection" in found.what, "it wants to see a certificate"
    assert "openssl x509" in found.advice
    found = told(meeting_at(server.address, tls=own_tls(certificates)))["store"]
    assert "does not speak TLS" in found.what
    assert "the same certificates" in found.advice


def test_certificates_of_another_authority_are_named(tls_server, certificates, tmp_path):
    others = Certificates(tmp_path, [HOST])
    found = told(meeting_at(tls_server, tls=own_tls(others)))["store"]
    assert found.state is State.PROBLEM
    assert "openssl x509" in found.advice


def test_an_older_holdfast_is_named():
    greeting = frame(0, encode(Greeting(VERSION + 1, bytes(32))))

    def serve():
        for _ in range(3):  # to see whether it listens, what it is, and to be introduced
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(greeting)
                connection.recv(1)  # until the other side has heard it

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        found = told(meeting_at(listener.getsockname()))["store"]
        thread.join(60)
    assert f"speaks version {VERSION + 1}" in found.what
    assert found.advice == "install the same holdfast on all nodes"


def test_a_free_port_of_this_machine_is_good_and_one_that_is_held_is_not():
    with socket.socket() as holder:
        holder.bind((HOST, 0))  # and does not listen
        place = holder.getsockname()
        found = told(meeting_at(place))["reachable"]
        assert found.state is State.PROBLEM
        assert "Address already in use" in found.what
    assert "the agent here would serve the store" in told(meeting_at(place))["reachable"].what
    # Somebody else is to serve there.
    found = told(meeting_at(place, is_host=False))["reachable"]
    assert (found.state, "nothing listens" in found.what) == (State.NOTE, True)


def test_a_store_that_is_stopped_is_silent(monkeypatch):
    monkeypatch.setattr("holdfast.rendezvous.listener.ANSWER_MAX_S", 0.1)
    with ServerProcess() as process:
        process.hold()
        found = told(meeting_at(process.address))["store"]
    assert found.state is State.PROBLEM
    assert "says nothing" in found.what


@pytest.mark.parametrize(
    ("attempt", "state", "words"),
    [
        (Attempt(Reach.REFUSED, "10.0.0.1"), State.NOTE, "this is expected before the job starts there"),
        (Attempt(Reach.TIMEOUT, "10.0.0.1", 3.0), State.PROBLEM, "firewall"),
        (Attempt(Reach.NO_ROUTE, "10.0.0.1", 0.0, "No route to host"), State.PROBLEM, "ip route get 10.0.0.1"),
        (Attempt(Reach.OTHER, "10.0.0.1", 0.0, "Permission denied"), State.PROBLEM, "Permission denied"),
        (Attempt(Reach.UNKNOWN_NAME), State.SKIPPED, "unknown host name"),
    ],
)
def test_every_way_not_to_be_reached_has_its_own_advice(attempt, state, words):
    (found,) = judge(Facts(NODE, attempt))
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (Listener(Kind.TORCH), "a job of torchrun"),
        (Listener(Kind.ETCD), "--backend etcd"),
        (Listener(Kind.HTTP, "HTTP/1.0 200 OK"), "HTTP/1.0 200 OK"),
        (Listener(Kind.OTHER, "SSH-2.0"), "'SSH-2.0'"),
        (Listener(Kind.SILENT), "kill -CONT"),
        (Listener(Kind.TLS), "speaks only TLS"),
    ],
)
def test_whoever_else_listens_is_named(listener, words):
    reached, found = judge(Facts(NODE, Attempt(Reach.CONNECTED, "10.0.0.1", 0.001), listener=listener))
    assert reached.state is State.OK
    assert found.state is State.PROBLEM
    assert words in f"{found.what} {found.advice}"


def test_a_store_that_gives_up_halfway_is_a_problem():
    failed = Introduction(Outcome.FAILED, "the store at node0:29400 does not answer (3 s)")
    facts = Facts(NODE, Attempt(Reach.CONNECTED), introduction=failed, listener=Listener(Kind.HOLDFAST))
    assert judge(facts)[1].state is State.PROBLEM


def test_a_slow_answer_is_a_warning_where_machines_have_little_time():
    assert judge_latency(0.2, NODE).state is State.OK
    assert judge_latency(0.3, NODE).state is State.WARNING
    assert judge_latency(0.3, NODE._replace(keep_alive_s=10.0)).state is State.OK


def test_without_an_endpoint_there_is_nothing_to_look_at(make_context):
    (found,) = check(make_context())
    assert found.state is State.SKIPPED
