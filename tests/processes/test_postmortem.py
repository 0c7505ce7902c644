"""What a process has left behind."""

from __future__ import annotations

import os

import pytest

from holdfast.processes.postmortem import (
    BAR_MAX_BYTES,
    END_MAX_BYTES,
    END_SUFFIX,
    PAGE_VARIABLE,
    STACKS_SUFFIX,
    crash_stacks,
    end_of,
    end_of_log,
    has_ended_well,
)

FATAL = "Fatal Python error: Segmentation fault\n\nCurrent thread:\n  File 'x.py', line 1 in crash\n"
REQUESTED = "Current thread:\n  File 'x.py', line 1 in wait\n"


@pytest.fixture
def env(tmp_path):
    """The environment of a worker whose page is in the test's directory."""
    return {PAGE_VARIABLE: str(tmp_path / "page")}


def write(env, suffix, text):
    with open(env[PAGE_VARIABLE] + suffix, "w") as file:
        file.write(text)


def test_the_end_of_a_short_file_is_all_of_it(tmp_path):
    (tmp_path / "log").write_text("some words\n")
    assert end_of(str(tmp_path / "log")) == "some words\n"


def test_the_end_of_a_long_file(tmp_path):
    (tmp_path / "log").write_text("x" * 100_000 + "the end")
    assert end_of(str(tmp_path / "log")) == ("x" * 100_000 + "the end")[-END_MAX_BYTES:]
    assert end_of(str(tmp_path / "log"), 7) == "the end"


def test_a_progress_bar_does_not_push_out_the_lines_before_it_in_a_log(tmp_path):
    path, frame = tmp_path / "log", "\r" + "#" * 99
    path.write_text("important line\n" + frame * 10_000)
    assert end_of_log(str(path)) == f"important line\n{frame[1:]}"
    path.write_text("important line\n" + frame * (BAR_MAX_BYTES // 100 + 1))
    assert end_of_log(str(path)) == frame[1:]
    path.write_text("x" * 100_000 + "the end\r\n")
    assert end_of_log(str(path)) == ("x" * 100_000 + "the end\r\n")[-END_MAX_BYTES:]
    assert end_of_log(str(tmp_path / "missing")) == ""


def test_bytes_that_are_no_text_are_escaped(tmp_path):
    (tmp_path / "log").write_bytes(b"\xff \xc3\xa9")
    assert end_of(str(tmp_path / "log")) == "\\xff é"


def test_a_link_is_followed(tmp_path):
    (tmp_path / "log").write_text("words")
    (tmp_path / "link").symlink_to("log")
    assert end_of(str(tmp_path / "link")) == "words"


def test_what_is_no_file_has_no_end_and_blocks_nobody(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "loop", "missing", "."):
        assert end_of(str(tmp_path / name)) == ""


def test_the_mark_of_a_good_end_has_the_process_id(env):
    assert not has_ended_well(env, 123)
    write(env, END_SUFFIX, "123")
    assert has_ended_well(env, 123)


@pytest.mark.parametrize("mark", ["", "12", "1234", "0123", "123\n"])
def test_another_mark_is_none_of_this_process(env, mark):
    write(env, END_SUFFIX, mark)
    assert not has_ended_well(env, 123)


@pytest.mark.parametrize("page", [{}, {PAGE_VARIABLE: ""}])
def test_a_worker_without_a_page_has_left_nothing(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / END_SUFFIX).write_text("123")
    (tmp_path / STACKS_SUFFIX).write_text(FATAL)
    assert not has_ended_well(page, 123)
    assert crash_stacks(page) == ""


def test_stacks_begin_with_the_crash(env):
    assert crash_stacks(env) == ""
    write(env, STACKS_SUFFIX, REQUESTED + FATAL)
    assert crash_stacks(env) == FATAL


def test_of_several_crashes_the_last_counts(env):
    """A page is used again by the next attempt's worker."""
    write(env, STACKS_SUFFIX, FATAL.replace("Segmentation fault", "Aborted") + FATAL)
    assert crash_stacks(env) == FATAL


def test_stacks_that_were_requested_are_no_crash(env):
    write(env, STACKS_SUFFIX, REQUESTED)
    assert crash_stacks(env) == ""
