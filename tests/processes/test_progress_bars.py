"""The last frame of each progress bar is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.processes.progress_bars import last_frames


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (b"", b""),
        (b"one\ntwo\n", b"one\ntwo\n"),
        (b"one\r\ntwo\r\n", b"one\r\ntwo\r\n"),
        (b"loading\n\r 10%\r 20%", b"loading\n 20%"),
        (b" 10%\r 20%\r", b" 20%\r"),
        (b" 10%\r 20%\r\nnext\n", b" 20%\r\nnext\n"),
        (b" 10%\r 20%\n 30%\r 40%\n", b" 20%\n 40%\n"),
        (b"\r\r", b"\r\r"),
    ],
)
def test_only_the_last_frame_of_a_bar_is_kept(data, kept):
    assert last_frames(data) == kept


PIECES = st.lists(st.sampled_from([b"\r", b"\n", b"a", b"b"])).map(b"".join)


@given(PIECES, PIECES)
def test_a_stream_can_be_given_piece_by_piece(begin, end):
    assert last_frames(last_frames(begin) + end) == last_frames(begin + end)
