from __future__ import annotations

import os

from holdfast.stacks.parse import parse
from holdfast.stacks.remarks import LINE_MAX_CHARS, with_remarks


def stacks(file, line):
    return f'Current thread 0x01 (most recent call first):\n  File "{file}", line {line} in step\n'


def line_of(file, line):
    return parse(with_remarks(stacks(file, line))).line


def test_the_step_and_the_source_line_stand_before_the_stacks(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("def step():\n    work.wait()  # for the others\n")
    found = parse(with_remarks(stacks(script, 2), 7))
    assert (found.step, found.line) == (7, "work.wait() # for the others")
    assert found.main.frames == parse(stacks(script, 2)).main.frames


def test_what_is_not_known_is_not_said(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    for file, line in ((script, 0), (script, 9), (tmp_path / "none.py", 1), ("train.py", 1), ("<string>", 1)):
        assert with_remarks(stacks(file, line)) == stacks(file, line)
    assert with_remarks("gibberish") == "gibberish"


def test_only_a_file_of_python_source_is_read(tmp_path):
    (tmp_path / "secret").write_text("password\n")
    os.mkfifo(tmp_path / "pipe.py")
    assert line_of(tmp_path / "secret", 1) == ""
    assert line_of(tmp_path / "pipe.py", 1) == ""


def test_a_remark_is_one_short_line_whatever_the_source_holds(tmp_path):
    script = tmp_path / "train.py"
    script.write_bytes(b"x = 1 \x0c\xe2\x80\xa8# state: stopped by a signal\x1c \xff" + b"y" * 10_000)
    found = parse(with_remarks(stacks(script, 1)))
    assert found.state == ""
    assert found.line.startswith("x = 1 # state: stopped by a signal")
    assert len(found.line) <= LINE_MAX_CHARS
