from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stacks.parse import LINE_MAX_CHARS, Frame, parse

FAULTHANDLER = """\
Thread 0x00007f8a480626c0 (most recent call first):
  File "/srv/train.py", line 4 in load
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f8a48be7b80 (most recent call first):
  File "/srv/train.py", line 8 in step
  File "/srv/train.py", line 10 in <module>
"""
NAMED = """\
Thread 0x00007f8a480626c0 [loader [0]] (most recent call first):
  File "/srv/train.py", line 4 in load

Current thread 0x00007f8a48be7b80 [python3] (most recent call first):
  Garbage-collecting
  File "/srv/train.py", line 8 in step

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3", at _Py_DumpStack+0x48 [0x5f]
"""
PY_SPY = """\
Process 8443
Thread 8445 (idle): "loader"
    Loader.load (/srv/train.py:4)
Thread 8443 (active+gil): "MainThread"
    step (/srv/train (copy).py:8)
    <module> (/srv/train.py:10)
"""
STEP = (Frame("/srv/train.py", 8, "step"), Frame("/srv/train.py", 10, "<module>"))


def test_the_main_thread_is_the_one_that_faulthandler_writes_last():
    stacks = parse(FAULTHANDLER)
    assert [thread.is_main for thread in stacks.threads] == [False, True]
    assert stacks.main.frames == STEP
    assert stacks.threads[0].name == "0x00007f8a480626c0"


def test_the_thread_that_handled_the_signal_need_not_be_the_main_one():
    text = FAULTHANDLER.replace("Current thread", "Thread").replace("Thread", "Current thread", 1)
    assert parse(text).main.frames == STEP


def test_names_of_threads_and_a_native_stack_are_understood():
    stacks = parse(NAMED)
    assert [thread.name for thread in stacks.threads] == ["loader [0]", "python3"]
    assert stacks.main.frames == (Frame("/srv/train.py", 8, "step"),)


def test_the_main_thread_has_a_name_for_py_spy():
    stacks = parse(PY_SPY)
    assert stacks.main.frames == (Frame("/srv/train (copy).py", 8, "step"), Frame("/srv/train.py", 10, "<module>"))
    assert stacks.threads[0].frames == (Frame("/srv/train.py", 4, "Loader.load"),)


def test_without_names_py_spys_main_thread_has_the_number_of_the_process():
    assert parse(PY_SPY.replace(': "MainThread"', "")).main.frames[0].function == "step"


def test_of_several_dumps_the_last_one_counts():
    stacks = parse(FAULTHANDLER + FAULTHANDLER.replace("line 8", "line 9"))
    assert len(stacks.threads) == 2
    assert stacks.main.frames[0].line == 9


def test_with_more_threads_than_are_written_the_main_one_is_the_current_one_or_unknown():
    other = 'Thread 0x0000000000000001 (most recent call first):\n  File "/srv/a.py", line 1 in idle\n...\n'
    assert parse(FAULTHANDLER + "\n" + other).main.frames == STEP
    assert parse(other).main is None


def test_a_single_thread_without_a_number_is_the_main_one():
    text = 'Stack (most recent call first):\n  File "/srv/train.py", line 8 in step\n'
    assert parse(text).main.frames == (Frame("/srv/train.py", 8, "step"),)


def test_frames_after_a_cut_belong_to_no_thread_that_was_named():
    text = FAULTHANDLER.replace(
        "\nCurrent", '\n... 400 characters left out ...\n  File "/x.py", line 1 in x\n\nCurrent'
    )
    assert [len(thread.frames) for thread in parse(text).threads] == [2, 1, 2]
    assert parse(text).main.frames == STEP


def test_remarks_stand_before_the_stacks():
    stacks = parse("# state: stopped by a signal\n# source: py-spy\n" + PY_SPY)
    assert (stacks.state, stacks.source, len(stacks.threads)) == ("stopped by a signal", "py-spy", 2)


def test_what_is_not_known_of_a_frame_is_no_obstacle():
    text = 'Current thread 0x00007f8a48be7b80 (most recent call first):\n  File "/a.py", line ??? in ???\n  ...\n'
    assert parse(text).main.frames == (Frame("/a.py", 0, "???"),)


@pytest.mark.parametrize("text", [FAULTHANDLER, NAMED, PY_SPY])
def test_stacks_that_end_anywhere_are_understood_as_far_as_they_go(text):
    whole = parse(text)
    for end in range(len(text)):
        stacks = parse(text[:end])
        assert len(stacks.threads) <= len(whole.threads)


@pytest.mark.parametrize("piece", [" (", " (:1", "a (", '", line 1', '"', "] (most recent call first):"])
@pytest.mark.parametrize("begin", ["    a", '  File "', "Thread 0x1 [", 'Thread 1 ("'])
def test_no_line_takes_long(begin, piece):
    """A node may send stacks of a mebibyte: an expression that takes quadratic time would take minutes for them."""
    line = begin + piece * ((LINE_MAX_CHARS - len(begin)) // len(piece))
    parse("\n".join([line] * 1024))


@given(st.text())
def test_any_text_is_survived(text):
    parse(text)
