from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Category, ChildFailedError, ProcessFailure
from holdfast.errors.diagnosis import Evidence
from holdfast.errors.failure import Failure, diagnosed, in_order
from holdfast.errors.kind import FailureKind


def written(path, message="E: x", stack="Traceback\nE: x", at=1_700_000_000):
    info = {"py_callstack": stack, "timestamp": str(at)}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": info}}))
    return str(path)


def test_it_holds_what_the_error_file_says(tmp_path):
    path = written(tmp_path / "error.json")
    failure = ProcessFailure(local_rank=1, pid=12, exitcode=3, error_file=path)
    assert (failure.local_rank, failure.pid, failure.exitcode, failure.error_file) == (1, 12, 3, path)
    assert failure.message == "Traceback\nE: x"
    assert failure.timestamp == 1_700_000_000
    assert failure.error_file_data["message"]["message"] == "E: x"
    assert failure.has_error_file()
    assert failure.category is Category.USER
    assert failure.host == os.uname().nodename


def test_the_time_is_the_whole_second_that_the_file_has(tmp_path):
    path = tmp_path / "error.json"
    info = {"py_callstack": "", "timestamp": "1700000000", "timestamp_ns": 1_700_000_000_750_000_000}
    path.write_text(json.dumps({"message": {"message": "E: x", "extraInfo": info}}))
    failure = ProcessFailure(0, 12, 1, str(path))
    assert (type(failure.timestamp), str(failure.timestamp)) == (int, "1700000000")
    assert failure.record.timestamp == pytest.approx(1_700_000_000.75, abs=1e-3)


def test_dataclasses_know_its_fields(tmp_path):
    failure = ProcessFailure(0, 12, 1, written(tmp_path / "f"))
    found = dataclasses.asdict(failure)
    assert list(found)[:4] == ["local_rank", "pid", "exitcode", "error_file"]
    assert (found["message"], found["timestamp"]) == ("Traceback\nE: x", 1_700_000_000)
    assert found["error_file_data"] == failure.error_file_data
    other = dataclasses.replace(failure, pid=13)
    assert (other.pid, other.message) == (13, failure.message)


@pytest.mark.parametrize("error_file", ["", "/nonexistent/error.json"])
def test_without_an_error_file_a_signal_is_named(error_file):
    before = time.time()
    failure = ProcessFailure(0, 12, -signal.SIGKILL, error_file)
    assert failure.message == "Signal 9 (SIGKILL) received by PID 12"
    assert failure.signal_name() == "SIGKILL"
    assert failure.error_file == "<N/A>"
    assert failure.error_file_data == {"message": "<NONE>"}
    assert not failure.has_error_file()
    assert before <= failure.record.timestamp <= time.time()


def test_a_signal_without_a_name_raises_nothing():
    failure = ProcessFailure(0, 12, -99, "")
    assert failure.message == "Signal 99 (<N/A>) received by PID 12"
    assert failure.signal_name() == "<N/A>"


def test_without_an_error_file_an_exit_says_what_is_known():
    failure = ProcessFailure(0, 12, 3, "")
    assert failure.message.startswith("PID 12 exited with code 3 and recorded no Python exception.\n")
    assert failure.signal_name() == "<N/A>"
    assert failure.error_file_data["message"] == "<NONE>"
    assert failure.error_file_data["errorTraits"] == {
        "category": "system_terminated_error",
        "retryability": "False",
    }


def test_the_exit_code_of_a_shell_is_explained():
    assert "exited with code 137 (as a shell reports SIGKILL)" in ProcessFailure(0, 12, 137, "").message
    assert "shell" not in ProcessFailure(0, 12, 255, "").message


def test_no_two_failures_share_their_data():
    one, other = ProcessFailure(0, 1, 3, ""), ProcessFailure(1, 2, 3, "")
    one.error_file_data["errorTraits"]["category"] = "changed"
    assert other.error_file_data["errorTraits"]["category"] == "system_terminated_error"


def test_a_broken_error_file_is_the_message(tmp_path):
    path = tmp_path / "error.json"
    path.write_text('{"message": {"message": "Value')
    failure = ProcessFailure(0, 12, 1, str(path))
    assert f"its error file {str(path)!r} is cut off" in failure.message
    assert failure.error_file == str(path)


def test_the_time_is_shown_with_milliseconds(monkeypatch, tmp_path):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        failure = ProcessFailure(0, 12, 1, "")
        failure.timestamp = 1_700_000_000.123
        assert failure.timestamp_isoformat() == "2023-11-14_22:13:20.123"
        failure.timestamp = 10.569
        assert failure.timestamp_isoformat() == "1970-01-01_00:00:10.569"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_it_is_compared_and_copied_by_value(tmp_path):
    failure = ProcessFailure(0, 12, 1, written(tmp_path / "f"))
    same = copy.deepcopy(failure)
    assert failure == same
    same.category = Category.INFRASTRUCTURE
    assert failure != same
    assert failure != "failure"


def test_it_is_pickled_with_what_it_has_read(tmp_path):
    path = tmp_path / "f"
    failure = ProcessFailure(0, 12, 1, written(path))
    failure.category = Category.INFRASTRUCTURE
    path.unlink()
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_it_shows_every_field(tmp_path):
    shown = repr(ProcessFailure(1, 12, -9, ""))
    assert shown.startswith("ProcessFailure(local_rank=1, pid=12, exitcode=-9, error_file='<N/A>', ")
    assert "category=<Category.USER" in shown


def test_failures_are_ordered_by_time_then_rank():
    failures = {rank: ProcessFailure(rank, 1, 1, "") for rank in (5, 3, 4)}
    for rank, at in {5: 10.002, 3: 10.003, 4: 10.002}.items():
        failures[rank].timestamp = at
    assert [rank for rank, _ in in_order(failures)] == [4, 5, 3]


@given(content=st.binary(), exitcode=st.integers(-300, 300))
def test_no_error_file_and_no_exit_code_takes_the_watcher_down(tmp_path_factory, content, exitcode):
    path = tmp_path_factory.getbasetemp() / "any-failure"
    path.write_bytes(content)
    failures = {0: ProcessFailure(0, 1, exitcode, str(path)), 1: ProcessFailure(1, 2, exitcode, "")}
    assert str(ChildFailedError("main", failures)).encode()
    assert repr(failures)
    assert pickle.loads(pickle.dumps(failures)) == failures


def test_it_is_a_view_of_one_frozen_record():
    failure = ProcessFailure(1, 12, -9, "")
    before = failure.record
    failure.message, failure.kind, failure.exitcode, failure.error_file = "why", FailureKind.HANG, 3, "/srv/e.json"
    assert failure.record == before.replace(message="why", kind=FailureKind.HANG, exit_code=3, error_file="/srv/e.json")
    assert before.message.startswith("Signal 9")
    assert ProcessFailure.of(failure.record) == failure
    with pytest.raises(AttributeError, match="does not change"):
        before.message = "other"


def test_it_has_no_attribute_that_nobody_knows():
    failure = ProcessFailure(1, 12, -9, "")
    with pytest.raises(AttributeError, match="'nonsense'"):
        failure.nonsense  # noqa: B018 - reading it is what fails
    with pytest.raises(AttributeError, match="nonsense"):
        failure.nonsense = 1


def test_all_evidence_is_in_the_diagnosis(tmp_path):
    evidence = Evidence(stderr="said\n", log_file="/logs/err", max_rss_kib=5, exited_at=1_700_000_000.5, ran_s=2.5)
    found = diagnosed(1, 12, 3, "", evidence)
    assert (found.stderr, found.log_file, found.max_rss_kib) == ("said\n", "/logs/err", 5)
    assert (found.timestamp, found.ran_s) == (1_700_000_000.5, 2.5)
    recorded = diagnosed(1, 12, 3, written(tmp_path / "f", at=1_600_000_000), evidence)
    assert recorded.timestamp == 1_600_000_000


def test_a_thread_that_failed_earlier_does_not_date_the_failure(tmp_path):
    path = tmp_path / "f"
    info = {"py_callstack": "E: x", "timestamp": "1600000000", "thread": "loader"}
    path.write_text(json.dumps({"message": {"message": "E: x", "extraInfo": info}}))
    assert diagnosed(1, 12, 3, str(path), Evidence(exited_at=1_700_000_000.5)).timestamp == 1_700_000_000.5
    assert diagnosed(1, 12, 3, str(path), Evidence()).timestamp == 1_600_000_000


def test_a_worker_that_was_killed_with_its_keeper_is_not_to_blame(tmp_path):
    evidence = Evidence(killed_with_keeper="killed with its keeper")
    found = diagnosed(1, 12, -9, "", evidence)
    assert (found.message, found.category) == ("killed with its keeper", Category.INFRASTRUCTURE)
    recorded = diagnosed(1, 12, -9, written(tmp_path / "f"), evidence)
    assert (recorded.message, recorded.category) == ("Traceback\nE: x", Category.USER)


@pytest.mark.parametrize(
    ("kind", "known"), [("hang", FailureKind.HANG), ("", FailureKind.EXIT), ("?", FailureKind.EXIT)]
)
def test_a_kind_of_a_newer_version_counts_as_an_exit(kind, known):
    assert Failure(kind=kind).known_kind() is known


def test_the_facts_for_everybody_have_nothing_of_the_machine():
    assert not {"stderr", "error_file_data", "survivors", "category", "error_file"} & Failure().facts().keys()
