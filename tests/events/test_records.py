from __future__ import annotations

import copy
import json
import pickle
import time
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.events import Event, EventSource, NodeState, RdzvEvent

EVENT = Event("torchelastic.worker.status.FAILED", EventSource.WORKER, 1700000000.25, {"rank": 3, "raw_error": None})
RDZV_EVENT = RdzvEvent("n", "run", "joined", "host", 12, NodeState.RUNNING, "host:29400", 1, 0, "")


class TestTimestamp:
    @pytest.mark.parametrize("given", [(), (None,), (0,)])
    def test_is_the_present_where_none_is_given(self, given):
        before = time.time()
        event = Event("name", EventSource.AGENT, *given)
        assert before <= event.timestamp <= time.time()

    def test_is_kept_where_one_is_given(self):
        assert Event("name", EventSource.AGENT, 1700000000.123).timestamp == 1700000000.123

    def test_milliseconds_survive_the_text(self):
        event = Event("name", EventSource.AGENT, 1700000000.123)
        assert Event.deserialize(event.serialize()).timestamp == 1700000000.123

    def test_of_a_text_without_a_time_is_unknown_and_not_the_present(self):
        text = '{"name": "n", "source": "AGENT", "timestamp": 0, "metadata": {}}'
        assert Event.deserialize(text).timestamp == 0
        assert RdzvEvent.deserialize(RDZV_EVENT.serialize()).timestamp == 0

    def test_of_a_rendezvous_event_is_the_present(self):
        before = time.time()
        event = RdzvEvent("n", "run", "joined", "host", 12, NodeState.INIT)
        assert before <= event.timestamp <= time.time()


class TestText:
    def test_of_an_event_has_the_agreed_fields(self):
        assert json.loads(EVENT.serialize()) == {
            "name": "torchelastic.worker.status.FAILED",
            "source": "WORKER",
            "timestamp": 1700000000.25,
            "metadata": {"rank": 3, "raw_error": None},
        }

    def test_of_a_rendezvous_event_has_the_agreed_fields(self):
        assert json.loads(RDZV_EVENT.serialize()) == {
            "name": "n",
            "run_id": "run",
            "message": "joined",
            "hostname": "host",
            "pid": 12,
            "node_state": "RUNNING",
            "master_endpoint": "host:29400",
            "rank": 1,
            "local_id": 0,
            "error_trace": "",
        }

    @pytest.mark.parametrize("event", [EVENT, RDZV_EVENT])
    def test_is_read_back(self, event):
        read = type(event).deserialize(event.serialize())
        assert read == event
        assert read.fields() == event.fields()

    def test_read_back_has_real_states(self):
        assert Event.deserialize(EVENT.serialize()).source is EventSource.WORKER
        assert RdzvEvent.deserialize(RDZV_EVENT.serialize()).node_state is NodeState.RUNNING

    def test_is_what_str_gives(self):
        assert str(EVENT) == EVENT.serialize()

    def test_is_one_line_whatever_is_in_it(self):
        text = Event("a\nb\u2028\udcff", EventSource.AGENT, metadata={"raw_error": "Traceback\n  File"}).serialize()
        assert text.isascii()
        assert text.isprintable()
        assert Event.deserialize(text).metadata == {"raw_error": "Traceback\n  File"}

    def test_has_the_text_of_values_that_json_does_not_know(self):
        text = Event("name", EventSource.AGENT, metadata={"path": Path("/x")}).serialize()
        assert json.loads(text)["metadata"] == {"path": "/x"}

    def test_may_have_fields_of_a_later_version(self):
        fields = json.loads(EVENT.serialize()) | {"colour": "red"}
        assert Event.deserialize(json.dumps(fields)) == EVENT


class TestDeserialize:
    @pytest.mark.parametrize("event", [EVENT, RDZV_EVENT])
    def test_returns_an_instance_as_it_is(self, event):
        assert type(event).deserialize(event) is event

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "nonsense",
            "5",
            "[]",
            "null",
            "{}",
            '{"name": "n"}',
            '{"name": "n", "source": "MOON"}',
            "[" * 100_000,
            RDZV_EVENT.serialize(),
            None,
            b"\xff",
        ],
    )
    def test_of_anything_else_is_an_input_error_that_shows_it(self, text):
        with pytest.raises(InputError, match="not JSON of the type Event") as caught:
            Event.deserialize(text)
        assert str(text)[:40] in str(caught.value)
        assert len(str(caught.value)) < 1000


class TestRecords:
    def test_unknown_sources_and_states_are_errors(self):
        with pytest.raises(ValueError, match="MOON"):
            Event("name", "MOON")
        with pytest.raises(ValueError, match="MOON"):
            RdzvEvent("n", "run", "joined", "host", 12, "MOON")

    def test_metadata_is_not_shared(self):
        one, other = Event("name", EventSource.AGENT), Event("name", EventSource.AGENT)
        one.metadata["x"] = 1
        assert other.metadata == {}

    def test_are_equal_if_their_fields_are(self):
        assert copy.deepcopy(EVENT) == EVENT
        assert Event("other", EVENT.source, EVENT.timestamp, EVENT.metadata) != EVENT
        assert EVENT != RDZV_EVENT
        assert EVENT.fields() != EVENT
        assert RdzvEvent(*RDZV_EVENT.fields().values()) == RDZV_EVENT

    def test_cannot_be_hashed_since_they_can_be_changed(self):
        with pytest.raises(TypeError, match="unhashable"):
            hash(EVENT)

    @pytest.mark.parametrize("event", [EVENT, RDZV_EVENT])
    def test_can_be_pickled(self, event):
        assert pickle.loads(pickle.dumps(event)) == event

    def test_show_their_fields(self):
        assert repr(Event("n", EventSource.AGENT, 1.5)) == (
            "Event(name='n', source=<EventSource.AGENT: 'AGENT'>, timestamp=1.5, metadata={})"
        )

    def test_take_only_their_fields(self):
        with pytest.raises(AttributeError):
            Event("n", EventSource.AGENT).nonsense = 1
