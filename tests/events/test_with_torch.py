"""torch on one side, holdfast on the other, each in its own process."""

from __future__ import annotations

import json

import pytest

from holdfast.events import Event, EventLog, EventSource, NodeState, RdzvEvent

pytestmark = pytest.mark.torch

TORCH = """
import warnings; warnings.simplefilter("ignore")
import json, os, sys
from torch.distributed.elastic import events
"""

EVENT = Event("n\n\u00fc\U0001f600", EventSource.WORKER, 1700000000.123, {"a": 1, "b": None, "c": 1.5, "d": True})
RDZV_EVENT = RdzvEvent("n", "run", "joined", "host", 12, NodeState.FAILED, "host:1", 1, None, "Traceback\n")


def test_torch_reads_our_events(run_python, tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path))
    log.write(EVENT)
    log.close()
    code = """
with open(os.environ["LOG"]) as lines:
    event = events.Event.deserialize(next(lines))
rdzv_event = events.RdzvEvent.deserialize(os.environ["RDZV_EVENT"])
assert event.source is events.EventSource.WORKER
assert rdzv_event.node_state is events.NodeState.FAILED
print(json.dumps([event.name, event.timestamp, event.metadata, rdzv_event.error_trace]))
print(event.serialize())
print(rdzv_event.serialize())
"""
    ended = run_python(TORCH + code, LOG=path, RDZV_EVENT=RDZV_EVENT.serialize())
    assert ended.returncode == 0, ended.stderr
    read, again, rdzv_again = ended.stdout.splitlines()
    assert json.loads(read) == [EVENT.name, EVENT.timestamp, EVENT.metadata, "Traceback\n"]
    assert again == EVENT.serialize()
    assert rdzv_again == RDZV_EVENT.serialize()


def test_we_read_torchs_events(run_python):
    code = """
metadata = {"a": 1, "b": None, "c": 1.5, "d": True}
print(events.Event("name", events.EventSource.AGENT, metadata=metadata).serialize())
print(events.RdzvEvent("n", "run", "joined", "host", 12, events.NodeState.RUNNING, rank=3).serialize())
"""
    ended = run_python(TORCH + code)
    assert ended.returncode == 0, ended.stderr
    text, rdzv_text = ended.stdout.splitlines()
    event = Event.deserialize(text)
    assert (event.name, event.source, event.timestamp) == ("name", EventSource.AGENT, 0)
    assert event.metadata == {"a": 1, "b": None, "c": 1.5, "d": True}
    assert event.serialize() == text
    rdzv_event = RdzvEvent.deserialize(rdzv_text)
    assert rdzv_event == RdzvEvent("n", "run", "joined", "host", 12, NodeState.RUNNING, rank=3)
    assert rdzv_event.serialize() == rdzv_text


def test_objects_of_torchs_become_ours(run_python):
    code = """
from holdfast.events import Event, EventSource
theirs = events.Event("name", events.EventSource.AGENT, 5, {"a": 1})
ours = Event("name", theirs.source, theirs.timestamp, theirs.metadata)
assert ours.source is EventSource.AGENT
assert ours == Event.deserialize(theirs)
print(ours.serialize() == theirs.serialize())
"""
    ended = run_python(TORCH + code)
    assert ended.stdout == "True\n", ended.stderr


def test_both_consoles_show_the_same(run_python):
    code = """
import holdfast.events
for module in (events, holdfast.events):
    module.record(module.Event("name", module.EventSource.AGENT, 5, {"a": 1}), "console")
"""
    ended = run_python(TORCH + code)
    theirs, ours = ended.stderr.splitlines()
    assert theirs == ours == '{"name": "name", "source": "AGENT", "timestamp": 5, "metadata": {"a": 1}}'
