"""The loop finds bugs that are planted, makes their inputs short, keeps them, and says how to see them again."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.campaign import fuzz, table
from fuzz.examination import HangError, examine, lines_run
from fuzz.loop import Loop
from fuzz.oracles import BrokenPromiseError, check_line, check_one_line, check_shown, pieces, promise
from fuzz.records import try_records
from fuzz.shapes import JSON
from fuzz.target import MIB, Target
from fuzz.targets import all_targets
from fuzz.typed import values_of

from fuzz import campaign, loop, with_atheris
from holdfast.errors.text import visible

ROOT = Path(__file__).parent.parent.parent


def parse(data):
    """A parser with bugs."""
    if b"\xff" in data:
        raise ValueError("a byte that no text has")
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(read, dict) and type(read.get("count")) is not int:
        raise TypeError("a count that is no number")


def target(run=parse, **more):
    return Target("planted", run, lambda: [b'{"count": 1, "name": "x"}'], JSON, **more)


@pytest.fixture(autouse=True)
def _places(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "FOUND", str(tmp_path / "found"))
    monkeypatch.setattr(loop, "CORPUS", str(tmp_path / "corpus"))
    monkeypatch.setattr(with_atheris, "is_installed", lambda: False)  # it knows nothing of what is planted


def test_bugs_that_are_planted_are_found_made_short_and_kept(monkeypatch):
    monkeypatch.setattr(campaign, "PROBLEMS_MAX", 2)  # which ends it
    told = []
    result = fuzz(target(), 7, 120.0, told.append)
    inputs = [Path(path).read_bytes() for path in result.found]
    assert {examine(target(), data).signature.split()[0] for data in inputs} == {"ValueError", "TypeError"}
    assert b"\xff" in inputs
    assert max(map(len, inputs)) < 15
    reports = [text for text in told if "has a problem" in text]
    assert len(reports) == 2
    assert all(f"INPUT={path}" in "".join(reports) for path in result.found)
    assert "planted" in table([result])


def test_a_campaign_without_a_problem_ends_in_time():
    result = fuzz(target(lambda _: None), 7, 0.2, lambda _: None)
    assert result.runs > 1
    assert not result.found


def test_the_same_seed_makes_the_same_inputs():
    tried = {1: [], 2: [], 3: []}
    for number, seed in ((1, 5), (2, 5), (3, 6)):
        searching = Loop(target(tried[number].append), seed)
        for _ in range(200):
            assert not [*searching.step()]
    assert tried[1] == tried[2] != tried[3]


def test_an_input_that_does_not_end_is_found(monkeypatch):
    monkeypatch.setattr("fuzz.examination.CPU_MAX_S", 0.05)

    def run(_data):
        while True:
            try:
                json.loads("{}")
            except Exception:
                raise AssertionError from None

    assert examine(target(run), b"").signature == HangError.__name__


def test_an_input_that_waits_is_found(monkeypatch):
    import time

    monkeypatch.setattr("fuzz.examination.REAL_MAX_S", 0.05)
    assert examine(target(lambda _: time.sleep(60)), b"").signature == HangError.__name__


def test_an_input_that_takes_much_memory_is_found():
    big = target(lambda _: bytearray(3 * MIB), memory_max_bytes=MIB)
    assert examine(big, b"", with_memory=True).signature == "memory"
    assert examine(big, b"") is None
    assert examine(target(lambda _: None), b"", with_memory=True) is None


def test_leaving_is_a_problem_too():
    assert examine(target(lambda _: sys.exit(0)), b"").signature.startswith("SystemExit")


def test_lines_that_are_run_are_counted():
    assert {Path(file).name for file, _ in lines_run(target(lambda data: visible(repr(data) + "\x1b")), b"")} == {
        "text.py"
    }


def test_valid_records_are_tried_and_the_shortest_is_kept():
    def run(data):
        assert int(data) < 1_000

    found = try_records(target(run, records=lambda: values_of(int).map(lambda number: b"%d" % number)), 1, 200)
    assert found[0] == b"1000"


@pytest.mark.parametrize("text", ["\x1b[31m", "\x9b", "\u202e", "\ud800", "x" * 11])
def test_what_is_not_fit_for_a_terminal_breaks_a_promise(text):
    with pytest.raises(BrokenPromiseError):
        check_shown(text, "it", 10)


def test_one_line_is_one_line():
    check_line("a\u00a0b é 中", "it", 10)
    check_shown("a\nb\tc", "it", 10)
    for text in ("a\nb", "a\u2028b"):
        with pytest.raises(BrokenPromiseError):
            check_line(text, "it", 10)
    with pytest.raises(BrokenPromiseError):
        check_one_line("", "it", 10)


def test_a_promise_that_is_kept_says_nothing():
    promise(1, "it")
    with pytest.raises(BrokenPromiseError, match="it"):
        promise([], "it")


def test_pieces_make_the_whole():
    for data in (b"", b"x", bytes(range(256)) * 9):
        assert b"".join(pieces(data)) == data
        assert [*pieces(data)] == [*pieces(data)]


def test_an_input_is_run_again_from_its_file(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"node0:29500")
    command = [sys.executable, "-m", "fuzz", "--target", "endpoint", "--input", str(path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nothing is wrong" in ended.stdout


@pytest.mark.parametrize(
    "words", [["--target", "nonsense"], ["--input", "x"], ["--target", "wire", "--input", "/nowhere"]]
)
def test_bad_words_are_refused_in_a_line(words):
    command = [sys.executable, "-m", "fuzz", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is optional: pip install atheris")
def test_atheris_runs_a_target_and_ends():
    assert [*with_atheris.inputs_found(all_targets()["worker-output"], 1.0, 1)] == []
