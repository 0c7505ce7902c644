"""Ranks and places in words."""

from __future__ import annotations

from holdfast.stacks.grouping import Group
from holdfast.stacks.parse import Frame
from holdfast.stacks.wording import frame_line, named, place_line

LIBRARY = Frame("/venv/lib/python3.11/site-packages/torch/x.py", 1, "run")
OWN = Frame("/srv/train.py", 8, "step")


def test_ranks_are_named_by_ranges():
    assert named([3]) == "rank 3"
    assert named([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"
    assert named(range(0, 100, 2)).endswith(", 36, 38, ...")


def test_ranks_are_in_their_order_whatever_order_they_come_in():
    assert named([4, 0, 1]) == "ranks 0-1, 4"


def test_a_place_is_the_innermost_line_of_the_users():
    assert place_line(Group((0,), "", (LIBRARY, OWN, Frame("/srv/train.py", 20, "main")))) == "/srv/train.py:8 in step"


def test_without_a_line_of_the_users_a_place_is_the_innermost_one():
    assert place_line(Group((0,), "", (LIBRARY,))) == f"{LIBRARY.file}:1 in run"


def test_a_place_has_the_state_of_the_process_or_says_that_it_is_unknown():
    assert place_line(Group((0,), "stopped by a signal", (OWN,))) == "/srv/train.py:8 in step, stopped by a signal"
    assert place_line(Group((0,), "stopped by a signal", ())) == "stopped by a signal"
    assert place_line(Group((0,), "", ())) == "nothing is known"


def test_names_and_states_play_no_tricks_with_a_terminal():
    assert "\033" not in frame_line(Frame("/srv/\033[2J.py", 1, "a\nb"))
    assert "\n" not in frame_line(Frame("/srv/\033[2J.py", 1, "a\nb"))
    assert "\033" not in place_line(Group((0,), "\033c", ()))
