from __future__ import annotations

import os
import sys

import pytest

from holdfast.events import (
    NodeState,
    RdzvEvent,
    construct_and_record_rdzv_event,
    record_rdzv_event,
    set_event_handler,
)


@pytest.fixture
def followed():
    """The events of the rendezvous."""
    events = []
    set_event_handler("dynamic_rendezvous", events.append)
    return events


def test_rendezvous_events_go_to_whoever_follows(followed):
    event = RdzvEvent("n", "run", "joined", "host", 12, NodeState.RUNNING)
    record_rdzv_event(event)
    assert followed == [event]


def test_nobody_has_to_follow(capfd):
    record_rdzv_event(RdzvEvent("n", "run", "joined", "host", 12, NodeState.RUNNING))
    construct_and_record_rdzv_event("run", "joined", NodeState.RUNNING)
    assert capfd.readouterr() == ("", "")


def test_what_is_given_is_in_the_event(followed):
    construct_and_record_rdzv_event(
        run_id="run",
        message="joined",
        node_state=NodeState.SUCCEEDED,
        name="name",
        hostname="host",
        pid=0,
        master_endpoint="host:29400",
        local_id=2,
        rank=0,
    )
    assert followed == [RdzvEvent("name", "run", "joined", "host", 0, NodeState.SUCCEEDED, "host:29400", 0, 2)]


def test_what_is_not_given_is_found_out(followed):
    construct_and_record_rdzv_event("run", "joined", NodeState.INIT)
    [event] = followed
    assert event.name == "test_recording.py:test_what_is_not_given_is_found_out"
    assert event.hostname == os.uname().nodename
    assert event.pid == os.getpid()
    assert (event.master_endpoint, event.rank, event.local_id, event.error_trace) == ("", None, None, "")


@pytest.mark.parametrize("state", list(NodeState))
def test_a_failure_and_nothing_else_has_the_traceback(followed, state):
    try:
        int("the cause")
    except ValueError:
        construct_and_record_rdzv_event("run", "joining", state)
    [event] = followed
    if state == NodeState.FAILED:
        assert event.error_trace.startswith("Traceback ")
        assert event.error_trace.endswith("'the cause'\n")
    else:
        assert event.error_trace == ""


def test_a_failure_without_an_exception_has_no_traceback(followed):
    assert sys.exception() is None
    construct_and_record_rdzv_event("run", "joining", NodeState.FAILED)
    assert followed[0].error_trace == ""
