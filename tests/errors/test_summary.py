from __future__ import annotations

import textwrap
import time

import pytest

from holdfast.errors import ProcessFailure
from holdfast.errors.advice import advice
from holdfast.errors.kind import COMMAND_LINE, FailureKind
from holdfast.errors.summary import HEADLINE_MAX_CHARS, OTHERS_MAX_LINES, gist, summarize

STACK = """\
Traceback (most recent call last):
  File "train.py", line 3, in main
    step()

ValueError: loss is nan
"""


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def failure(local_rank=0, pid=10, exitcode=1, at=1_700_000_000.25, message=None, host="node1", error_file="<N/A>"):
    made = ProcessFailure(local_rank, pid, exitcode, "")
    made.timestamp = at
    made.host = host
    made.message = made.message if message is None else message
    made.error_file = error_file
    return made


def lines(text):
    return textwrap.dedent(text).splitlines()


def test_the_root_cause_is_last_and_whole_and_the_others_are_short():
    failures = {
        4: failure(0, 10, -15, at=1_700_000_000.256),
        9: failure(1, 11, 1, message=STACK, error_file="/logs/1/error.json", host="node2"),
        6: failure(2, 12, 3, at=1_700_000_000.251, message="first line\nsecond line"),
    }
    expected = """
        ============================================================
        train.py FAILED
        ------------------------------------------------------------
        Failures:
          [1] rank 6 (local_rank: 2), host node1, exitcode 3 (pid: 12): first line
          [2] rank 4 (local_rank: 0), host node1, exitcode -15 (pid: 10) (SIGTERM): Signal 15 (SIGTERM) received by PID 10
        ------------------------------------------------------------
        Root Cause (first observed failure):
        [0]:
          time      : 2023-11-14_22:13:20.250
          host      : node2
          rank      : 9 (local_rank: 1)
          exitcode  : 1 (pid: 11)
          error_file: /logs/1/error.json
          kind      : exception
          where     : train.py:3 in main
          log_file  : /logs/1/stderr.log
          victims   : 9 more workers failed with it
          restarts  : 3 of 3
          traceback :
            Traceback (most recent call last):
              File "train.py", line 3, in main
                step()

            ValueError: loss is nan
        ============================================================
        """  # noqa: E501 - as it is shown
    failures[9].kind = FailureKind.EXCEPTION
    failures[9].where = "train.py:3 in main"
    failures[9].log_file = "/logs/1/stderr.log"
    shown = summarize("train.py", failures, victims_elsewhere=7, reason="restarts: 3 of 3").splitlines()
    assert shown == lines(expected)


def test_workers_that_failed_in_the_same_way_are_no_victims():
    made = [failure(rank, at=1_700_000_000 + rank, message=STACK) for rank in range(4)]
    for each in made:
        each.kind, each.exception, each.where = FailureKind.EXCEPTION, "FileNotFoundError", "train.py:3 in main"
    made[3].kind, made[3].exception = FailureKind.COMMUNICATION, "ConnectionResetError"
    shown = summarize("main", dict(enumerate(made))).splitlines()
    assert "  also      : 2 more workers failed" in shown
    assert "  victims   : 1 more worker failed with it" in shown
    made[1].where = made[2].where = "train.py:9 in main"
    assert "  victims   : 3 more workers failed with it" in summarize("main", dict(enumerate(made))).splitlines()


@pytest.mark.parametrize(
    ("exception", "where", "line"),
    [
        ("SyntaxError", "train.py:3", "  also      : 3 more workers failed"),
        ("", COMMAND_LINE, "  also      : 3 more workers failed"),
        ("ValueError", "train.py:3", "  victims   : 3 more workers failed with it"),
    ],
)
def test_a_program_that_cannot_start_has_no_victims_on_other_nodes(exception, where, line):
    made = failure(message=STACK)
    made.exception, made.where = exception, where
    shown = summarize("main", {0: made}, victims_elsewhere=3)
    assert line in shown.splitlines()
    assert ("victims" in shown) == ("victims" in line)


def test_a_single_failure_and_a_reason_of_one_line():
    expected = """
        ============================================================
        main FAILED
        ------------------------------------------------------------
        Failures:
          <NO_OTHER_FAILURES>
        ------------------------------------------------------------
        Root Cause (first observed failure):
        [0]:
          time      : 2023-11-14_22:13:20.250
          host      : node1
          rank      : 0 (local_rank: 0)
          exitcode  : -9 (pid: 10) (SIGKILL)
          error_file: <N/A>
          kind      : killed
          advice    : {advice}
          traceback : Signal 9 (SIGKILL) received by PID 10
        ============================================================
        """
    shown = summarize("main", {0: failure(exitcode=-9)}).splitlines()
    assert shown == lines(expected.replace("{advice}", advice(FailureKind.KILLED)))


def test_what_to_do_about_an_exception_is_said_if_more_is_known_than_its_traceback_says():
    made = failure(message=STACK)
    made.kind, made.exception = FailureKind.EXCEPTION, "ModuleNotFoundError"
    assert f"  advice    : {advice(made.kind, made.exception)}" in summarize("main", {0: made}).splitlines()
    made.exception = "ValueError"
    assert "advice" not in summarize("main", {0: made})


def test_the_borders_are_the_callers():
    shown = summarize("main", {0: failure()}, border="#", rule="~").splitlines()
    assert shown[1] == "#" * 60 == shown[-1]
    assert shown[3] == "~" * 60


def test_thousands_of_failures_are_counted_not_listed():
    failures = {rank: failure(rank, at=1_700_000_000 + rank) for rank in range(5000)}
    shown = summarize("main", failures).splitlines()
    assert f"  and {4999 - OTHERS_MAX_LINES} more" in shown
    assert len(shown) < OTHERS_MAX_LINES + 30


def test_the_gist_is_what_the_error_file_states():
    made = failure(message=STACK + "a note that would hide the error")
    made.error_file_data = {"message": {"message": "ValueError: loss is nan\nmore"}}
    assert gist(made) == "ValueError: loss is nan"


@pytest.mark.parametrize("stated", [{}, {"message": " "}, {"message": 5}, "text", None])
def test_the_gist_of_a_failure_that_states_nothing_is_taken_from_its_message(stated):
    made = failure(message=STACK)
    made.error_file_data = {"message": stated}
    assert gist(made) == "ValueError: loss is nan"


def test_the_gist_is_bounded():
    assert len(gist(failure(message="x" * 10_000))) == HEADLINE_MAX_CHARS


def test_it_can_always_be_encoded():
    made = failure(error_file="/tmp/\udcff")
    made.error_file_data = {"message": {"message": "\ud800"}}
    assert summarize("\ud800", {0: made, 1: made}).encode()


def test_what_a_program_says_does_not_steer_the_terminals_of_others():
    text = summarize("train.py", {0: failure(message="\x1b[2J\x1b]0;owned\x07\u202e", host="node1\x1b[31m")})
    assert "\x1b" not in text
    assert "\\x1b[2J" in text
