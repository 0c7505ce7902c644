"""The promises that targets check can be broken: each bug that is planted here is found by its target."""

from __future__ import annotations

import re

import pytest
from fuzz.loop import Loop
from fuzz.records import try_records
from fuzz.targets import all_targets

from holdfast.agent import requests
from holdfast.coordination import client_connection, keyspace, server_connection, service, wire
from holdfast.errors import summary
from holdfast.processes import lines
from holdfast.report import page, units
from holdfast.stacks import wording
from holdfast.torchstore.keyspace import KeySpace
from holdfast.watchdog import fifo_server

TRIES = 3_000


@pytest.fixture
def finds(targets):
    """Whether a target finds something that says so."""
    return lambda name, saying: _finds(targets[name], saying)


@pytest.fixture(scope="module")
def targets():
    """Imported before anything is planted."""
    return all_targets()


def _finds(target, saying):
    found = try_records(target, 1, 60)
    if found is not None and saying in found[1].text:
        return True
    loop = Loop(target, 1)
    if any(saying in problem.text for _, problem in loop.first()):
        return True
    return any(saying in problem.text for _ in range(TRIES) for _, problem in loop.step())


def as_it_is(text, *_):
    return text


def test_frames_that_depend_on_the_pieces(monkeypatch, finds):
    def feed(self, data):
        self._data = data
        self._offset = 0

    monkeypatch.setattr(wire.Frames, "feed", feed)
    assert finds("wire", "depend on how the bytes are cut")


def test_a_frame_of_any_length(monkeypatch, finds):
    take = wire.Frames.take

    def careless(self):
        self.limit_bytes = 1 << 30
        return take(self)

    monkeypatch.setattr(wire.Frames, "take", careless)
    assert finds("wire", "a frame is longer than the limit")


def test_a_refusal_that_steers_a_terminal(monkeypatch, finds):
    monkeypatch.setattr(server_connection, "headline", lambda text, _: f"\x1b{text}")
    assert finds("server-connection", "control character '\\x1b'")


def test_a_timer_that_is_left_of_a_connection(monkeypatch, finds):
    lost = server_connection.ServerConnection.connection_lost

    def careless(self, error):
        self._linger = None
        lost(self, error)

    monkeypatch.setattr(server_connection.ServerConnection, "connection_lost", careless)
    assert finds("server-connection", "a timer is left")


def test_an_error_of_the_store_that_steers_a_terminal(monkeypatch, finds):
    monkeypatch.setattr(client_connection, "visible", lambda text: f"\x1b{text}")
    assert finds("client-connection", "control character '\\x1b'")


def test_bytes_that_are_not_counted(monkeypatch, finds):
    monkeypatch.setattr(keyspace, "_bytes_of", lambda entry: len(entry.value))
    assert finds("service", "the bytes are not counted right")


def test_watches_that_are_left(monkeypatch, finds):
    monkeypatch.setattr(service.Service, "leave", lambda *_: None)
    assert finds("service", "watches are left")


def test_a_watch_that_is_told_of_anothers_keys(monkeypatch, finds):
    monkeypatch.setattr(keyspace, "_under", lambda made, _: made)
    assert finds("service", "another's key")


def test_waits_of_workers_that_are_gone(monkeypatch, finds):
    monkeypatch.setattr(KeySpace, "leave", lambda *_: None)
    assert finds("store-requests", "a wait is left")


@pytest.mark.parametrize(("place", "name"), [(units, "event-log"), (summary, "error-file"), (wording, "stacks")])
def test_text_that_steers_a_terminal(monkeypatch, finds, place, name):
    for function in ("visible", "visible_line"):
        if hasattr(place, function):
            monkeypatch.setattr(place, function, as_it_is)
    assert finds(name, "the control character")


def test_complaints_without_end(monkeypatch, finds):
    monkeypatch.setattr(fifo_server, "COMPLAINTS_MAX", 1_000)
    assert finds("watchdog", "complaints are shown")


def test_a_page_with_elements_of_a_log(monkeypatch, finds):
    monkeypatch.setattr(page, "escape", as_it_is)
    assert finds("event-log", "of the log's own")


def test_a_request_with_the_name_of_another_directory(monkeypatch, finds):
    monkeypatch.setattr(requests, "_LINE", re.compile(rb"(stacks) (.{1,64})"))
    assert finds("agent-requests", "not the name of a file")


def test_lines_that_depend_on_the_pieces(monkeypatch, finds):
    def careless(_, data):
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    monkeypatch.setattr(lines.Lines, "_with_line_feeds", careless)
    assert finds("worker-output", "depends on how the bytes are cut")
