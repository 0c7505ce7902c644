"""Error files as large as a worker likes: what is shown stays short, and says where the rest is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.errors.error_file import FILE_MAX_BYTES

ENDED_MAX_S = 120
SHOWN_MAX_BYTES = 1 << 20

LEAVE = """
import os, sys
head, unit, tail = sys.argv[2:]
size = int(sys.argv[1])
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as file:
    file.write(head + unit * ((size - len(head + tail)) // len(unit.encode())) + tail)
os._exit(1)
"""

TEXT = ('{"message": "the beginning ', '"}')
VALUES = ('{"message": "the beginning", "values": [', "0]}")


@pytest.mark.parametrize("size", [FILE_MAX_BYTES, 8 * FILE_MAX_BYTES])
@pytest.mark.parametrize(
    ("unit", "around"),
    [(r"\u001b", TEXT), ("\U0001f600", TEXT), (r"\n", TEXT), ("[],", VALUES), ("[" * 60 + "]" * 60 + ",", VALUES)],
    ids=["escapes", "wide", "lines", "lists", "nested"],
)
def test_a_large_error_file_does_not_flood_the_terminal(tmp_path, size, unit, around):
    script = tmp_path / "leave.py"
    script.write_text(LEAVE)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "holdfast", "run", "--log-dir", tmp_path),
            script,
            str(size),
            around[0],
            unit,
            around[1],
        ],
        capture_output=True,
        timeout=ENDED_MAX_S,
        check=False,
    )
    assert ended.returncode == 1
    assert b"the beginning" in ended.stderr
    assert b"/error.json" in ended.stderr
    assert len(ended.stderr) < SHOWN_MAX_BYTES
