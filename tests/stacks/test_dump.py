from __future__ import annotations

import json
import os

import pytest

from holdfast.run_directory import RunDirectory
from holdfast.stacks import dump as dumping
from holdfast.stacks.dump import gather, keep, read
from holdfast.stacks.render import render
from holdfast.stacks.wire import RankStacks

STACK = """\
Thread 0x0000000000000001 (most recent call first):
  File "/srv/{file}.py", line 3 in idle_{rank}

Current thread 0x0000000000000002 (most recent call first):
  File "/srv/{file}.py", line 8 in {file}
  File "/srv/train.py", line 10 in <module>
"""


def rank_at(rank, file, host="node0"):
    return RankStacks(host, 100 + rank, STACK.format(file=file, rank=rank))


@pytest.fixture
def dump():
    ranks = {rank: rank_at(rank, "reduce", f"node{rank // 4}") for rank in range(8)}
    ranks[5] = rank_at(5, "load", "node1")
    return gather("job7", "no heartbeat for 30 s", 1_700_000_000.0, ranks, {"node2": "it did not answer"})


def test_ranks_that_have_ended_are_shown_and_kept(dump, tmp_path):
    assert "\nended " not in render(dump)
    done = gather("job7", "somebody asked", 1.0, {2: rank_at(2, "reduce")}, ended=[3, 0, 1])
    assert "\nended   ranks 0-1, 3\n" in render(done)
    keep(done, RunDirectory(str(tmp_path)), "done")
    assert read(str(tmp_path / "stacks" / "done.json")).ended == (0, 1, 3)


def test_the_verdict_is_one_line(dump):
    assert dump.verdict == "rank 5 is in a different place than the others: /srv/load.py:8 in load"
    same = gather("job", "", 0.0, {rank: rank_at(rank, "reduce") for rank in range(3)})
    assert same.verdict == "all 3 ranks are at the same place: /srv/reduce.py:8 in reduce"
    split = gather("job", "", 0.0, {0: rank_at(0, "reduce"), 1: rank_at(1, "load")})
    assert split.verdict == "the 2 ranks are at 2 places, and none stands out"


def test_a_dump_is_kept_for_people_and_for_programs(dump, tmp_path):
    assert keep(dump, RunDirectory(str(tmp_path)), "one") == "stacks/one.txt"
    assert (tmp_path / "stacks/one.txt").read_text() == render(dump)
    data = json.loads((tmp_path / "stacks/one.json").read_text())
    assert data["outliers"] == [5]
    assert data["groups"][0]["frames"][0] == {"file": "/srv/load.py", "line": 8, "function": "load"}
    assert read(str(tmp_path / "stacks/one.json")) == dump
    assert sorted(os.listdir(tmp_path / "stacks")) == ["one.json", "one.txt"]
    assert (tmp_path / "stacks/one.txt").stat().st_mode & 0o777 == 0o600


def test_a_dump_that_cannot_be_written_leaves_nothing_half_done(dump, tmp_path):
    (tmp_path / "stacks/one.json").mkdir(parents=True)
    with pytest.raises(OSError, match=r"one\.json"):
        keep(dump, RunDirectory(str(tmp_path)), "one")
    assert os.listdir(tmp_path / "stacks") == ["one.json"]


def test_of_too_many_ranks_the_different_ones_are_kept(dump, monkeypatch):
    monkeypatch.setattr(dumping, "TEXTS_MAX_CHARS", 2 * len(STACK))
    small = gather("job", "", 0.0, dump.ranks)
    assert small.outliers == (5,)
    assert small.ranks[5] == dump.ranks[5]
    assert "left out" in small.ranks[7].text
    assert list(small.ranks) == list(range(8))


def test_text_of_any_characters_can_be_kept(tmp_path):
    dump = gather("job\udcff", "\ud800", 1.0, {0: rank_at(0, "reduce", "node\udcff")}, {"node\udcff": "\udc80"})
    keep(dump, RunDirectory(str(tmp_path)), "odd")
    kept = read(str(tmp_path / "stacks" / "odd.json"))
    assert (kept.run_id, kept.reason, kept.missing) == ("job\\udcff", "\\ud800", {"node\\udcff": "\\udc80"})
