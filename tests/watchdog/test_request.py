from __future__ import annotations

import json
import math
import pickle
import signal

import pytest

from holdfast.watchdog import FileTimerRequest, TimerRequest
from holdfast.watchdog.request import parse_request


def line(**changes):
    fields = {"version": 1, "pid": 12, "scope_id": "s", "expiration_time": 1.5, "signal": 9} | changes
    return json.dumps({name: value for name, value in fields.items() if value != "absent"}).encode()


def test_the_line_is_the_agreed_one():
    request = FileTimerRequest(12, "train.py#3", 1700000000.25, signal.SIGKILL)
    assert request.to_json() == (
        '{"version": 1, "pid": 12, "scope_id": "train.py#3", "expiration_time": 1700000000.25, "signal": 9}'
    )


@pytest.mark.parametrize("scope_id", ["", "a b", 'quote " and \\', "line\nfeed", "käse \U0001f600", "\ud800"])
def test_what_was_written_is_read(scope_id):
    request = FileTimerRequest(12, scope_id, 1.25, 15)
    text = request.to_json()
    assert "\n" not in text
    assert parse_request(text.encode()) == request


def test_a_release_is_a_negative_time():
    assert FileTimerRequest(1, "s", -1).is_release
    assert not FileTimerRequest(1, "s", 0).is_release
    assert FileTimerRequest(1, "s", -1).signal == 0


def test_whole_numbers_and_infinity_are_times():
    assert parse_request(line(expiration_time=7)).expiration_time == 7.0
    assert parse_request(line(expiration_time=-1)).is_release
    assert parse_request(line(expiration_time=math.inf)).expiration_time == math.inf


def test_other_versions_and_keys_are_ignored():
    assert parse_request(line(version=2, more=[1])) == parse_request(line(version="absent"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"nonsense", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"version": 1, "pid": 12, "sc', "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "pid"),
        (line(pid="12"), "pid"),
        (line(pid=True), "pid"),
        (line(pid=12.0), "pid"),
        (line(pid=0), "pid"),
        (line(pid=-3), "pid"),
        (line(pid=2**31), "pid"),
        (line(scope_id=None), "scope_id"),
        (line(scope_id=["s"]), "scope_id"),
        (line(expiration_time="absent"), "expiration_time"),
        (line(expiration_time="1"), "expiration_time"),
        (line(expiration_time=True), "expiration_time"),
        (line(expiration_time=math.nan), "expiration_time"),
        (line(expiration_time=10**400), "expiration_time"),
        (line(signal="absent"), "signal"),
        (line(signal="SIGKILL"), "signal"),
        (line(signal=False), "signal"),
        (line(signal=1000), "signal"),
    ],
)
def test_what_is_no_request_is_named(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_request(text)


def test_requests_compare_by_what_they_ask():
    assert TimerRequest(1, "s", 2) == TimerRequest(1, "s", 2)
    for other in (
        TimerRequest(2, "s", 2),
        TimerRequest(1, "t", 2),
        TimerRequest(1, "s", 3),
        FileTimerRequest(1, "s", 2),
    ):
        assert TimerRequest(1, "s", 2) != other
    assert FileTimerRequest(1, "s", 2, 9) == FileTimerRequest(1, "s", 2, 9)
    assert FileTimerRequest(1, "s", 2, 9) != FileTimerRequest(1, "s", 2, 15)
    assert FileTimerRequest(1, "s", 2).worker_pid == 1
    assert repr(FileTimerRequest(1, "s", 2)) == (
        "FileTimerRequest(worker_pid=1, scope_id='s', expiration_time=2, signal=0)"
    )


@pytest.mark.parametrize("request_", [TimerRequest(1, "s", 2.5), FileTimerRequest(1, "s", 2.5, 9)])
def test_a_request_goes_through_a_queue(request_):
    assert pickle.loads(pickle.dumps(request_)) == request_
