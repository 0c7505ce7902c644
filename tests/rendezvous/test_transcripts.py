"""Every transcript is what happens. With UPDATE_TRANSCRIPTS set they are written anew; then read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from transcript import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_what_happens_is_what_the_transcript_says(path):
    written = path.read_text()
    happens = replay(written)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(happens)
    else:
        assert happens == written


def test_every_transcript_begins_with_what_it_shows():
    for path in TRANSCRIPTS:
        assert path.read_text().startswith("# "), path.name


def test_an_event_that_is_not_known_is_an_error():
    with pytest.raises(ValueError, match="no such event"):
        replay("settings: nodes 1\n> a dances\n")
