"""Every event is read as it was written, in both formats; whatever else is there, reading goes on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors.failure import Failure
from holdfast.events.schema import (
    EVENTS,
    AttemptEnded,
    AttemptStarted,
    LateCrash,
    RecordedEvent,
    RunEnded,
    RunStarted,
    StacksCollected,
    VerdictReached,
    Warned,
    WorkerFailed,
)
from holdfast.report.entries import Facts, parse_line
from holdfast.report.reading import event_in, failure_in

TEXT = st.text(max_size=8).filter(lambda text: text.isprintable())
NUMBER = st.integers(-(1 << 40), 1 << 40)
SECONDS = st.floats(0, 1e9)
NUMBERS = st.lists(NUMBER, max_size=3).map(tuple)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
MAYBE = st.none() | NUMBER
FAILURES = st.builds(
    Failure,
    rank=NUMBER,
    local_rank=NUMBER,
    host=TEXT,
    pid=NUMBER,
    exit_code=MAYBE,
    kind=TEXT,
    message=TEXT,
    where=TEXT,
    exception=TEXT,
    log_file=TEXT,
    max_rss_kib=NUMBER,
    ran_s=SECONDS,
    timestamp=SECONDS,
)
WRITTEN = st.one_of(
    st.builds(RunStarted, agent=TEXT, pid=NUMBER, command=TEXTS, nproc=NUMBER, backend=TEXT),
    st.builds(
        AttemptStarted,
        attempt=NUMBER,
        job=TEXT,
        generation=MAYBE,
        node=MAYBE,
        ranks=NUMBERS,
        pids=NUMBERS,
        waited_s=SECONDS,
    ),
    st.builds(WorkerFailed, attempt=NUMBER, failure=FAILURES),
    st.builds(Warned, attempt=NUMBER, rank=MAYBE, text=TEXT),
    st.builds(AttemptEnded, attempt=NUMBER, outcome=TEXT, reason=TEXT, ran_s=SECONDS),
    st.builds(VerdictReached, attempt=NUMBER, generation=MAYBE, cause=FAILURES, victims=NUMBER, decision=TEXT),
    st.builds(StacksCollected, attempt=NUMBER, reason=TEXT, file=TEXT, outliers=NUMBERS, where=TEXTS),
    st.builds(RunEnded, outcome=TEXT, reason=TEXT, restarts=NUMBER),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def line_of(event):
    return RecordedEvent(event, timestamp=12.5, monotonic=7.25, run_id="job7", hostname="node0", group_rank=0).fields()


def read(line):
    return parse_line(json.dumps(line).encode()).event


@given(WRITTEN)
def test_what_is_written_is_read(event):
    assert read(line_of(event)) == event


@given(WRITTEN)
def test_the_first_format_says_the_same(event):
    line = line_of(event)
    del line["metadata"]["format"]
    line["metadata"]["details"] = json.dumps(line["metadata"]["details"])
    assert read(line) == event


def test_a_late_crash_is_a_warning_about_its_rank():
    crash = LateCrash(attempt=2, crash=Failure(rank=5, pid=77), text="it crashed late")
    assert read(line_of(crash)) == Warned(attempt=2, rank=5, text="it crashed late")


@given(WRITTEN, st.text(max_size=5), JSON)
def test_fields_of_a_later_version_are_passed_over(event, name, value):
    line = line_of(event)
    line["metadata"]["details"] = {f"later {name}": value, **line["metadata"]["details"]}
    assert read(line) == event


def test_events_of_a_later_version_are_passed_over():
    assert event_in("holdfast.run.paused", Facts({"attempt": 1})) is None


@pytest.mark.parametrize("kind", EVENTS)
def test_what_is_missing_has_its_default(kind):
    event = event_in(f"holdfast.{kind.NAME}", Facts({}))
    inner = {name: Failure() for name in ("cause", kind.INLINE) if name in kind.__annotations__}
    assert event == (Warned() if kind is LateCrash else kind(**inner))


@given(st.sampled_from(EVENTS), JSON)
def test_no_value_of_another_type_takes_the_reader_down(kind, value):
    names = [*kind.__annotations__, *Failure.FACTS]
    event = event_in(f"holdfast.{kind.NAME}", Facts(dict.fromkeys(names, value)))
    assert event is not None
    assert isinstance(failure_in(Facts(dict.fromkeys(Failure.FACTS, value))), Failure)
