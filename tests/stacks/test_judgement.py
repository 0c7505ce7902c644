"""Who is blamed for a hang: stacks as faulthandler and py-spy write them, and the verdict."""

from __future__ import annotations

import pytest
from stack_texts import ALL_REDUCE, BACKWARD, BARRIER, LOADER, NO_STACK, SAVING, STOPPED, WORK_WAIT, text

from holdfast.stacks.dump import gather
from holdfast.stacks.parse import parse
from holdfast.stacks.wire import RankStacks


def at_step(step, stacks):
    return f"# step: {step}\n{stacks}"


VERDICTS = {
    "of two ranks, the one that is not in a collective": (
        {0: ALL_REDUCE, 1: LOADER},
        [1],
        "rank 1 is at /srv/loader.py:4 in read; rank 0 waits for it in all_reduce",
    ),
    "one of many": (
        {**dict.fromkeys(range(8), ALL_REDUCE), 5: LOADER},
        [5],
        "rank 5 is at /srv/loader.py:4 in read; ranks 0-4, 6-7 wait for it in all_reduce",
    ),
    "several that are elsewhere": (
        {**dict.fromkeys(range(8), ALL_REDUCE), 2: LOADER, 5: SAVING},
        [2, 5],
        (
            "rank 2 is at /srv/loader.py:4 in read, rank 5 is at /srv/save.py:7 in save; "
            "ranks 0-1, 3-4, 6-7 wait for them in all_reduce"
        ),
    ),
    "most are elsewhere": (
        {0: BARRIER, 1: LOADER, 2: LOADER},
        [1, 2],
        "ranks 1-2 are at /srv/loader.py:4 in read; rank 0 waits for them in barrier",
    ),
    "several that are elsewhere, the one behind first": (
        {0: at_step(7, ALL_REDUCE), 2: at_step(7, LOADER), 5: at_step(6, SAVING)},
        [5, 2],
        (
            "rank 2 is at /srv/loader.py:4 in read, rank 5 is at /srv/save.py:7 in save; "
            "rank 0 waits for them in all_reduce"
        ),
    ),
    "the backward pass of one, in which it may wait": (
        {0: BACKWARD, 1: LOADER},
        [1],
        "rank 1 is at /srv/loader.py:4 in read; rank 0 may wait for it in backward",
    ),
    "the wait for a collective that was started before": (
        {0: WORK_WAIT, 1: LOADER},
        [1],
        "rank 1 is at /srv/loader.py:4 in read; rank 0 may wait for it in wait",
    ),
    "different collectives, two ranks": (
        {0: ALL_REDUCE, 1: BARRIER},
        [],
        (
            "the ranks wait in different calls: rank 0 in all_reduce at /srv/train.py:8 in step, "
            "rank 1 in barrier at /srv/train.py:9 in step"
        ),
    ),
    "different collectives, two ranks, one behind": (
        {0: at_step(4, ALL_REDUCE), 1: at_step(3, BARRIER)},
        [1],
        (
            "the ranks wait in different calls: rank 0 in all_reduce at /srv/train.py:8 in step, "
            "rank 1 in barrier at /srv/train.py:9 in step; rank 1 is furthest behind, at step 3 while others are at 4"
        ),
    ),
    "different collectives, one of many": (
        {**dict.fromkeys(range(4), ALL_REDUCE), 2: BARRIER},
        [2],
        (
            "the ranks wait in different calls: rank 2 in barrier at /srv/train.py:9 in step, "
            "ranks 0-1, 3 in all_reduce at /srv/train.py:8 in step"
        ),
    ),
    "a collective and a backward pass, two ranks": (
        {0: ALL_REDUCE, 1: BACKWARD},
        [1],
        (
            "the ranks wait in different calls: rank 0 in all_reduce at /srv/train.py:8 in step, "
            "rank 1 in backward at /srv/train.py:15 in step"
        ),
    ),
    "most in a backward pass": (
        {**dict.fromkeys(range(4), BACKWARD), 3: ALL_REDUCE},
        [3],
        (
            "the ranks wait in different calls: rank 3 in all_reduce at /srv/train.py:8 in step, "
            "ranks 0-2 in backward at /srv/train.py:15 in step"
        ),
    ),
    "all in the same collective": (
        dict.fromkeys(range(4), ALL_REDUCE),
        [],
        (
            "all 4 ranks wait in all_reduce at /srv/train.py:8 in step: none stands out; the collective itself or the "
            "network is stuck"
        ),
    ),
    "all in the same collective, one behind": (
        {**dict.fromkeys(range(4), at_step(9, ALL_REDUCE)), 2: at_step(8, ALL_REDUCE)},
        [2],
        (
            "all 4 ranks wait in all_reduce at /srv/train.py:8 in step: "
            "rank 2 is furthest behind, at step 8 while others are at 9"
        ),
    ),
    "all in the same collective, not all tell their step": (
        {0: at_step(9, ALL_REDUCE), 1: ALL_REDUCE},
        [],
        (
            "all 2 ranks wait in all_reduce at /srv/train.py:8 in step: none stands out; the collective itself or the "
            "network is stuck"
        ),
    ),
    "a stopped rank, though it is where the others are": (
        {**dict.fromkeys(range(2), ALL_REDUCE), 1: STOPPED},
        [1],
        "rank 1 is at /srv/train.py:8 in step, stopped by a signal; rank 0 waits for it in all_reduce",
    ),
    "a rank without a Python stack": (
        {0: ALL_REDUCE, 1: NO_STACK},
        [1],
        "rank 1: no Python stack: sleeping, in the kernel at futex_wait; rank 0 waits for it in all_reduce",
    ),
    "a rank that is elsewhere rather than one of which nothing is known": (
        {0: ALL_REDUCE, 1: NO_STACK, 2: LOADER},
        [2],
        "rank 2 is at /srv/loader.py:4 in read; rank 0 waits for it in all_reduce",
    ),
    "nobody waits: the minority": (
        {0: LOADER, 1: SAVING, 2: LOADER},
        [1],
        "rank 1 is in a different place than the others: /srv/save.py:7 in save",
    ),
    "nobody waits, two ranks": ({0: LOADER, 1: SAVING}, [], "the 2 ranks are at 2 places, and none stands out"),
    "nobody waits, two ranks, one behind": (
        {0: at_step(3, LOADER), 1: at_step(2, SAVING)},
        [1],
        "the 2 ranks are at 2 places; rank 1 is furthest behind, at step 2 while others are at 3",
    ),
    "one rank": ({0: LOADER}, [], "the only rank: /srv/loader.py:4 in read"),
    "no rank": ({}, [], "no rank could be inspected"),
}


def verdict(stacks, **options):
    ranks = {rank: RankStacks("node0", 100 + rank, each) for rank, each in stacks.items()}
    return gather("job", "", 0.0, ranks, **options)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_rank_that_the_others_wait_for_is_blamed(name):
    stacks, blamed, sentence = VERDICTS[name]
    dump = verdict(stacks)
    assert (list(dump.outliers), dump.verdict) == (blamed, sentence)


def test_a_rank_that_has_ended_is_what_those_in_a_collective_wait_for():
    dump = verdict({0: ALL_REDUCE, 2: ALL_REDUCE}, ended=[1])
    assert dump.outliers == ()
    assert dump.verdict == "rank 1 has ended already; ranks 0, 2 wait for it in all_reduce"


def test_a_rank_that_is_elsewhere_is_blamed_before_one_that_has_ended():
    assert verdict({0: ALL_REDUCE, 2: LOADER}, ended=[1]).outliers == (2,)


def test_a_node_that_does_not_answer_may_have_the_rank_that_the_others_wait_for():
    dump = verdict({0: ALL_REDUCE}, missing={"node 1": "it did not answer within 20 s"})
    assert dump.outliers == ()
    assert dump.verdict == "nothing is known of node 1; rank 0 waits for them in all_reduce"


def test_a_sentence_names_only_some_places():
    places = {rank: text(f"/srv/train.py:{rank} step") for rank in range(1, 9)}
    sentence = verdict({0: ALL_REDUCE, **places}).verdict
    assert "rank 4 is at /srv/train.py:4 in step, ...; rank 0 waits for them in all_reduce" in sentence


def test_a_step_that_is_no_number_is_none():
    for step in ("", "x", "-1", "9" * 5000):
        assert parse(at_step(step, LOADER)).step == -1
