"""Exceptions that nobody caught, in the error file of this process."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import ChildFailedError, ProcessFailure
from holdfast.errors.uncaught import EARLIER_MAX_CHARS, record_uncaught


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    return tmp_path / "error.json"


@pytest.fixture
def written():
    """The state of a process that has recorded nothing."""
    return {}


def fail(text):
    raise ValueError(text)


def raised(text):
    with pytest.raises(ValueError, match=r".") as problem:
        fail(text)
    return problem.value


def message(path):
    return json.loads(path.read_text())["message"]


def info(path):
    return message(path)["extraInfo"]


def test_that_of_the_main_thread(path, written):
    record_uncaught(raised("x"), "", written)
    assert message(path)["message"] == "ValueError: x"
    assert "in fail" in info(path)["py_callstack"]
    assert "thread" not in info(path)


def test_that_of_a_thread_has_its_name(path, written):
    record_uncaught(raised("x"), "loader", written)
    assert info(path)["thread"] == "loader"
    assert info(path)["py_callstack"].startswith("Exception in thread loader:\nTraceback ")


def test_the_first_thread_is_kept_until_the_main_one_fails(path, written):
    record_uncaught(raised("one"), "loader", written)
    record_uncaught(raised("two"), "saver", written)
    assert message(path)["message"] == "ValueError: one"
    record_uncaught(raised("x" * 9), "", written)
    assert message(path)["message"] == "ValueError: xxxxxxxxx"
    _, _, earlier = info(path)["py_callstack"].partition("\n\nBefore that, a thread had ended:\n")
    assert all(line.startswith("> ") for line in earlier.splitlines())
    assert earlier.endswith("> ValueError: one\n")


def test_a_long_traceback_of_a_thread_is_cut(path, written):
    record_uncaught(raised("x" * 3 * EARLIER_MAX_CHARS), "loader", written)
    record_uncaught(raised("main"), "", written)
    assert EARLIER_MAX_CHARS // 2 < len(info(path)["py_callstack"]) < 2 * EARLIER_MAX_CHARS


def test_a_file_of_somebody_else_stays(path, written):
    path.write_text("theirs")
    record_uncaught(raised("x"), "", written)
    assert path.read_text() == "theirs"


def test_a_file_that_somebody_else_has_written_since_stays(path, written):
    record_uncaught(raised("x"), "loader", written)
    path.unlink()
    path.write_text("theirs")
    record_uncaught(raised("y"), "", written)
    assert path.read_text() == "theirs"


def test_an_empty_file_is_nobodys(path, written):
    path.write_text("")
    record_uncaught(raised("x"), "", written)
    assert message(path)["message"] == "ValueError: x"


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch, written):
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    record_uncaught(raised("x"), "", written)
    assert (written, list(tmp_path.iterdir())) == ({}, [])


def test_the_failure_of_a_child_is_handed_on_with_its_exit_code(path, tmp_path, written):
    file = tmp_path / "of_the_child.json"
    file.write_text(json.dumps({"message": {"message": "KeyError: 'deep'", "extraInfo": {"timestamp": "1"}}}))
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=7, error_file=str(file))
    record_uncaught(ChildFailedError("child", {0: failure}), "", written)
    assert (message(path)["message"], message(path)["errorCode"]) == ("KeyError: 'deep'", 7)
