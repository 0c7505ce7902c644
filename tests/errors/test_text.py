from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors.text import all_encodable, clipped, encodable, headline, painted, visible, visible_line


def test_clipped_leaves_a_text_within_the_limit_alone():
    assert clipped("0123456789", 10) == "0123456789"


@pytest.mark.parametrize("limit", [0, 1, 9, 10])
def test_clipped_keeps_head_and_tail_and_says_how_much_is_missing(limit):
    head, note, tail = clipped("abcdefghijklmnopqrst", limit).split("\n")
    assert len(head) + len(tail) == limit
    assert "abcdefghijklmnopqrst".startswith(head)
    assert "abcdefghijklmnopqrst".endswith(tail)
    assert note == f"... {20 - limit} characters left out ..."


def test_encodable_escapes_what_utf_8_refuses_and_nothing_else():
    assert encodable("ä\ud800 \U0001f600") == "ä\\ud800 \U0001f600"


def test_visible_escapes_what_steers_a_terminal():
    assert visible("ä\x1b[2J\n\t\0") == "ä\\x1b[2J\n\t\\x00"


@pytest.mark.parametrize("char", ["\x9b", "\x7f", "\u202e", "\u2066", "\u200f", "\u061c", "\ufeff", "\u2028", "\ud800"])
def test_visible_escapes_what_hides_or_turns_text(char):
    assert visible(f"a{char}b") == f"a{ascii(char)[1:-1]}b"


@given(st.text(st.characters()))
def test_what_is_visible_steers_nothing_and_stays_as_it_is_when_it_is_shown_again(text):
    shown = visible(text)
    shown.encode()
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown if char not in "\n\t")
    assert visible(shown) == painted(shown) == shown
    assert visible_line(text).splitlines() in ([visible_line(text)], [])


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_letters_and_signs_of_any_script_stay(text):
    assert visible_line(text) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n\n  one  \n two", "one"),
        ("Traceback (most recent call last):\n  File\nValueError: x\n\n", "ValueError: x"),
        ("0123456789!", "0123456..."),
    ],
)
def test_headline_is_the_line_that_says_most(text, line):
    assert headline(text, 10 if text.startswith("0") else 80) == line


def test_all_encodable_reaches_every_text():
    value = {"a\ud800": ["b\udcff", ("c", 1, None)], "d": {"e": "\udc80"}, "f": 0.5}
    shown = {"a\\ud800": ["b\\udcff", ["c", 1, None]], "d": {"e": "\\udc80"}, "f": 0.5}
    assert all_encodable(value) == shown
