"""The events of a run: what is written is what the schema says, at no cost to a job of one node."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from costly_imports import COSTLY_IMPORTS

from holdfast.errors.failure import Failure
from holdfast.events import Event, EventLog, EventSource, set_event_handler
from holdfast.events.schema import (
    EVENTS,
    FORMAT,
    AttemptEnded,
    LateCrash,
    RecordedEvent,
    RunEnded,
    RunStarted,
    VerdictReached,
    WorkerFailed,
    details_of,
    field_types,
)

FAILURE = Failure(rank=3, local_rank=1, exit_code=-9, kind="killed", message="why", stderr="only here")


def recorded(event):
    return RecordedEvent(event, timestamp=12.5, monotonic=7.25, run_id="job7", hostname="node0", group_rank=None)


def test_a_line_has_torchs_fields_and_ours_as_an_object():
    line = json.loads(json.dumps(recorded(RunEnded(outcome="failed", restarts=2)).fields()))
    assert line == {
        "name": "holdfast.run.ended",
        "source": "AGENT",
        "timestamp": 12.5,
        "metadata": {
            "format": FORMAT,
            "run_id": "job7",
            "hostname": "node0",
            "group_rank": None,
            "monotonic": 7.25,
            "details": {"outcome": "failed", "reason": "", "restarts": 2},
        },
    }


def test_a_failure_is_written_beside_the_other_fields_and_a_cause_as_an_object():
    assert details_of(WorkerFailed(attempt=1, failure=FAILURE)) == {"attempt": 1, **FAILURE.facts()}
    assert details_of(VerdictReached(cause=FAILURE))["cause"] == FAILURE.facts()
    assert details_of(LateCrash(crash=FAILURE, text="x")) == {"attempt": 0, "text": "x", **FAILURE.facts()}


def test_what_stays_on_the_machine_is_in_no_event():
    assert "only here" not in json.dumps(recorded(VerdictReached(cause=FAILURE)).fields())


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_says_when_it_happens_and_has_a_name(event):
    assert event.__doc__
    assert event.NAME
    assert set(field_types(event)) - {event.INLINE, "cause"} <= set(vars(event)), "a field without a default"


def test_they_go_to_the_file_and_to_no_handler(tmp_path):
    handled = []
    set_event_handler("schema_of_test", handled.append)
    log = EventLog(str(tmp_path / "events.jsonl"), "schema_of_test")
    torchs = Event("torchelastic.worker.status.START", EventSource.AGENT)
    log.write(recorded(AttemptEnded(attempt=1)))
    log.write(torchs)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["holdfast.attempt.ended", torchs.name]
    assert handled == [torchs]


def test_events_do_not_change():
    with pytest.raises(AttributeError, match="does not change"):
        RunStarted().pid = 1


def test_importing_costs_no_heavy_module():
    code = "import sys; before = set(sys.modules); import holdfast.events.schema; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not COSTLY_IMPORTS & set(ran.stdout.split())
