"""Stacks as people read them."""

from __future__ import annotations

import pytest

from holdfast.stacks import render as rendering
from holdfast.stacks.dump import gather
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


def test_the_one_that_differs_is_first_and_marked(dump):
    text = render(dump)
    assert dump.outliers == (5,)
    first, _, rest = text.partition(">>> rank 5 on node1, 1 of 8: in a different place than the others\n")
    assert "job7" in first
    assert "no heartbeat for 30 s" in first
    assert "missing node2: it did not answer" in first
    assert "rank 5 is in a different place than the others: /srv/load.py:8 in load" in first
    assert rest.startswith("    /srv/load.py:8 in load\n    /srv/train.py:10 in <module>\n")
    assert "\nranks 0-4, 6-7 on 2 hosts, 7 of 8\n    /srv/reduce.py:8 in reduce\n" in rest


def test_all_threads_of_each_rank_follow(dump):
    text = render(dump)
    for rank in range(8):
        assert f"rank {rank}: PID {100 + rank} on node{rank // 4}\n  main thread" in text
        assert f"in idle_{rank}" in text
    assert "idle_3" not in render(dump, in_full=False)


def test_colours_are_only_there_if_asked_for(dump):
    assert "\033" not in render(dump)
    assert "\033[1;31m>>> rank 5" in render(dump, colour=True)


def test_what_programs_put_into_names_plays_no_tricks_with_a_terminal():
    text = 'Current thread 0x01 (most recent call first):\n  File "/srv/\033[2J.py", line 8 in \033]0;x\n'
    shown = render(gather("\033c", "\033c", 0.0, {0: RankStacks("\033c", 1, text)}, {"\033c": "\033c"}))
    assert "\033" not in shown


def test_ranks_of_which_nothing_is_known_are_shown_too():
    shown = render(gather("job", "asked for", 0.0, {0: RankStacks("node0", 1, "gibberish\n")}))
    assert "the only rank: nothing is known" in shown
    assert "  gibberish\n" in shown
    assert "ranks   0" in render(gather("job", "asked for", 0.0, {}))


def test_of_too_many_groups_and_frames_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(rendering, "GROUPS_MAX", 2)
    monkeypatch.setattr(rendering, "GROUP_FRAMES_MAX", 1)
    shown = render(gather("job", "", 0.0, {rank: rank_at(rank, f"f{rank}") for rank in range(5)}), in_full=False)
    assert shown.count(", 1 of 5") == 2
    assert shown.count("    and 1 more, see below\n") == 2
    assert "and 3 more groups" in shown


def test_frames_of_libraries_are_faint():
    text = (
        "Current thread 0x01 (most recent call first):\n"
        '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 1 in run\n  File "/srv/train.py", line 2 in f\n'
    )
    shown = render(gather("job", "", 0.0, {0: RankStacks("node0", 1, text)}), colour=True, in_full=False)
    assert "\033[2m    /venv/lib/python3.11/site-packages/torch/x.py:1 in run\033[0m\n    /srv/train.py:2 in f" in shown


def test_a_thread_without_frames_and_the_state_of_a_process_are_shown():
    text = (
        "# state: stopped by a signal\n# source: py-spy\n"
        'Process 7\nThread 7 (idle): "MainThread"\nThread 8 (idle): "loader"\n'
    )
    shown = render(gather("job", "", 0.0, {0: RankStacks("node0", 7, text)}))
    assert "rank 0: PID 7 on node0\n  stopped by a signal\n  from py-spy\n  main thread\n    no Python frame\n" in shown
    assert "  thread loader\n    no Python frame\n" in shown
