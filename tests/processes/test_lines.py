from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.processes import lines
from holdfast.processes.lines import Lines, whole_characters


def fed(collector, *pieces):
    return [collector.feed(piece) for piece in pieces]


def test_a_line_is_given_when_it_is_complete():
    collector = Lines(b"p:")
    assert fed(collector, b"one", b" line\ntw", b"o\n", b"\nfour\nfi") == [
        b"",
        b"p:one line\n",
        b"p:two\n",
        b"p:\np:four\n",
    ]
    assert collector.finish() == b"p:fi\n"
    assert collector.finish() == b""


def test_without_a_prefix_lines_are_as_they_are():
    assert fed(Lines(b""), b"a\nb\nc", b"\n") == [b"a\nb\n", b"c\n"]


def test_a_prefix_may_be_anything():
    assert fed(Lines(b"\n> \r"), b"a\nb\n", b"c\n") == [b"\n> \ra\n\n> \rb\n", b"\n> \rc\n"]


def test_a_character_is_never_cut():
    euro = "€".encode()
    collector = Lines(b":")
    assert fed(collector, euro[:1], euro[1:2], euro[2:] + b"\n") == [b"", b"", b":" + euro + b"\n"]


def test_a_progress_bar_is_lines():
    collector = Lines(b":")
    assert fed(collector, b"\r10%", b"\r20%", b"\r30%\n") == [b":\n", b":10%\n", b":20%\n:30%\n"]
    assert fed(collector, b"40%\r", b"50%\r") == [b":40%\n", b":50%\n"]


@pytest.mark.parametrize("pieces", [[b"a\r\nb\r\n"], [b"a\r", b"\nb\r", b"\n"], [b"a", b"\r", b"\n", b"b\r\n"]])
def test_a_return_and_a_line_feed_are_one_end(pieces):
    assert b"".join(fed(Lines(b":"), *pieces)) == b":a\n:b\n"


def test_two_line_feeds_after_a_return_are_two_ends():
    assert b"".join(fed(Lines(b":"), b"a\r", b"\n", b"\n")) == b":a\n:\n"


def test_only_line_feeds_and_returns_end_a_line():
    text = "a\x0b\x0c\x1c\x85\u2028b\n"
    seen = []
    collector = Lines(b"", lambda line: not seen.append(line))
    assert collector.feed(text.encode()) == text.encode()
    assert seen == [text]


def test_a_filter_sees_each_line_and_keeps_its_bytes():
    seen = []

    def keep(line):
        seen.append(line)
        return "keep" in line

    collector = Lines(b":", keep)
    assert fed(collector, b"keep \xff\nno\nke", b"ep\n") == [b":keep \xff\n", b":keep\n"]
    assert collector.feed(b"keep, no end") == b""
    assert collector.finish() == b":keep, no end\n"
    assert seen == ["keep \ufffd\n", "no\n", "keep\n", "keep, no end\n"]


def test_a_line_beyond_the_limit_comes_in_pieces_that_end_at_a_character(monkeypatch):
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 10)
    collector = Lines(b":")
    assert fed(collector, b"x" * 10) == [b""]
    assert fed(collector, "y€".encode()[:-1]) == [b":" + b"x" * 10 + b"y\n"]
    assert fed(collector, "€".encode()[-1:] + b"\n") == [":€\n".encode()]


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", 0),
        (b"a", 1),
        (b"abcdefgh", 8),
        ("aé".encode(), 3),
        ("aé".encode()[:-1], 1),
        ("a€".encode()[:-1], 1),
        ("a€".encode()[:-2], 1),
        ("a😀".encode(), 5),
        ("a😀".encode()[:-1], 1),
        ("ab😀".encode()[:-3], 2),
        (b"\x80" * 9, 9),
    ],
)
def test_whole_characters(data, whole):
    assert whole_characters(data) == whole


@given(st.lists(st.binary(max_size=8).filter(lambda line: not set(line) & set(b"\r\n"))), st.data())
def test_however_the_bytes_arrive_the_lines_are_the_same(content, data):
    written = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n"])) for line in content)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)))))
    pieces = [written[start:end] for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    collector = Lines(b"> ")
    blocks = [*fed(collector, *pieces), collector.finish()]
    assert b"".join(blocks) == b"".join(b"> " + line + b"\n" for line in content)
    assert all(block.endswith(b"\n") for block in blocks if block)
