from __future__ import annotations

import pytest
from dripping_server import HOST, dripping_server

from holdfast.doctor.gateway import Answer, ask

INTERVAL_S = 0.05


@pytest.mark.parametrize(
    "greeting", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"]
)
def test_an_answer_that_never_ends_is_no_answer(greeting, monkeypatch):
    monkeypatch.setattr("holdfast.doctor.gateway.GATEWAY_MAX_S", 4 * INTERVAL_S)
    with dripping_server(greeting, b"\0", INTERVAL_S) as port:
        assert "timed out" in ask(HOST, port, "/version", None).error


def test_a_body_that_is_nested_too_deep_has_no_fields():
    assert Answer(200, "[" * 60_000).fields == {}
