"""The health check over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest

from holdfast.agent import HealthCheckServer, create_healthcheck_server
from holdfast.agent.health import CLIENTS_MAX, REQUEST_MAX_BYTES, REQUEST_TIMEOUT_S


@pytest.fixture
def server():
    made = []

    def start(age_s, timeout=60):
        server = HealthCheckServer(lambda: time.time() - age_s, 0, timeout, host="127.0.0.1")
        server.start()
        made.append(server)
        return server

    yield start
    for each in made:
        each.stop()


def ask(server, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/healthz", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def test_progress_that_is_young_enough(server):
    status, kind, body = ask(server(age_s=5))
    assert (status, kind) == (200, "application/json")
    answer = json.loads(body)
    assert answer["healthy"] is True
    assert answer["timeout_s"] == 60
    assert 5 <= answer["last_progress_age_s"] < 60


def test_progress_that_is_too_old(server):
    status, _, body = ask(server(age_s=61))
    assert status == 503
    assert json.loads(body)["healthy"] is False


def test_a_head_has_no_body(server):
    assert ask(server(age_s=0), "HEAD")[::2] == (200, b"")


def test_the_callback_can_be_replaced(server):
    running = server(age_s=0)
    running.alive_callback = lambda: 0
    assert ask(running)[0] == 503


def test_a_callback_that_raises_is_no_progress_and_ends_nothing(server, caplog):
    def fail():
        raise ValueError("no time yet")

    running = server(age_s=0)
    running.alive_callback = fail
    for _ in range(2):
        status, _, body = ask(running)
        assert (status, json.loads(body)["healthy"]) == (503, False)
    assert json.loads(body)["last_progress_age_s"] is None
    assert [record.getMessage() for record in caplog.records] == [
        "the health check is unhealthy: its callback failed: ValueError('no time yet')"
    ]
    running.alive_callback = time.time
    assert ask(running)[0] == 200


def test_a_client_that_says_nothing_holds_the_others_for_a_bounded_time(server):
    running = server(age_s=0)
    with socket.create_connection(("127.0.0.1", running.port)):
        assert ask(running)[0] == 200


def test_a_client_that_never_comes_to_its_end_is_dropped_in_time_and_holds_nobody(server):
    running = server(age_s=0)
    with socket.create_connection(("127.0.0.1", running.port)) as slow:
        began = time.monotonic()
        slow.settimeout(0.2)
        with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012 - one byte after the other
            while True:
                slow.sendall(b"x")
                assert ask(running)[0] == 200
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1) == b"":
                        raise ConnectionError
        assert time.monotonic() - began >= REQUEST_TIMEOUT_S / 2


def test_more_clients_than_there_is_room_for_keep_nobody_from_an_answer(server):
    running = server(age_s=0)
    silent = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(2 * CLIENTS_MAX)]
    try:
        assert ask(running)[0] == 200
    finally:
        for each in silent:
            each.close()


def test_a_request_that_is_too_long_is_not_taken_in(server):
    running = server(age_s=0)
    with socket.create_connection(("127.0.0.1", running.port)) as long:
        long.settimeout(30)
        with contextlib.suppress(ConnectionError):
            long.sendall(b"GET /" + b"x" * (4 * REQUEST_MAX_BYTES))
            long.recv(1 << 16)
    assert ask(running)[0] == 200


def test_what_is_no_question_has_no_health_in_its_answer(server):
    assert ask(server(age_s=0), "DELETE")[::2] == (501, b"{}\n")


def test_nothing_is_left_of_it(server):
    before = set(os.listdir("/proc/self/fd")), threading.active_count()
    running = HealthCheckServer(time.time, 0, 60, host="127.0.0.1")
    running.stop()
    running.start()
    running.start()
    assert ask(running)[0] == 200
    running.stop()
    running.stop()
    assert (set(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_a_port_that_is_taken(server):
    taken = server(age_s=0).port
    with pytest.raises(OSError, match="in use"):
        HealthCheckServer(time.time, taken, 60, host="127.0.0.1").start()


def test_the_server_that_an_agent_makes():
    assert create_healthcheck_server(time.time, 1234, 60).port == 1234
