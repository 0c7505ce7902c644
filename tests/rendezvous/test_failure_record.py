"""A failure comes through the store as it was told, with no more than others may be told."""

from __future__ import annotations

import pytest

from holdfast.errors import ProcessFailure
from holdfast.errors.diagnosis import Evidence
from holdfast.errors.failure import Failure
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.failure_record import from_record, to_record
from holdfast.rendezvous.records import TEXT_MAX_CHARACTERS

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/train.py", line 23, in step\nValueError: nan\n'


@pytest.fixture
def failure():
    evidence = Evidence(stderr=TRACEBACK, max_rss_kib=77, log_file="/logs/stderr.log", exited_at=12.5, ran_s=3.25)
    return ProcessFailure(1, 4711, 1, "", evidence=evidence)


def test_every_fact_arrives(failure):
    arrived = from_record(to_record(failure, rank=5, node="a.1", others=2))
    assert arrived.facts() == failure.record.replace(rank=5).facts()
    assert arrived.kind is FailureKind.EXCEPTION


def test_other_nodes_are_told_whose_failure_it_is_and_whether_a_restart_can_help(failure):
    failure.exception = "SyntaxError"
    told = to_record(failure, rank=5, node="a.1", others=2)
    assert (told.node, told.rank, told.others, told.message) == ("a.1", 5, 2, "ValueError: nan")
    assert told.hopeless


def test_the_view_of_what_arrived_is_as_torch_has_it(failure):
    view = ProcessFailure.of(from_record(to_record(failure, rank=5, node="a.1", others=0)))
    assert (view.exitcode, view.error_file, view.has_error_file()) == (1, "<N/A>", False)
    extra = {"py_callstack": failure.message, "timestamp": "12"}
    assert view.error_file_data == {"message": {"message": "ValueError: nan", "extraInfo": extra}}


def test_only_the_end_of_a_long_message_is_told(failure):
    failure.message = "x" * TEXT_MAX_CHARACTERS + "the end"
    arrived = from_record(to_record(failure, rank=5, node="a.1", others=0))
    assert len(arrived.message) == TEXT_MAX_CHARACTERS
    assert arrived.message.endswith("xthe end")


def test_what_stays_on_the_machine_is_not_told(failure):
    arrived = from_record(to_record(failure, rank=5, node="a.1", others=0))
    assert (arrived.stderr, arrived.survivors, arrived.category) == ("", (), Failure().category)
