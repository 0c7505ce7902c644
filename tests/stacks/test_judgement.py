"""Who is blamed for a hang: stacks as faulthandler and py-spy write them, and the verdict."""

from __future__ import annotations

import textwrap

import pytest

from holdfast.stacks.dump import gather
from holdfast.stacks.parse import parse
from holdfast.stacks.waiting import Position, Stance, position
from holdfast.stacks.wire import RankStacks

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
LOGGER = f"{SITE}/torch/distributed/c10d_logger.py"


def text(*frames, remarks=""):
    """What faulthandler writes: "file:line function", the innermost first. A thread of the library comes before."""
    lines = [
        "Thread 0x00007f0000000001 (most recent call first):",
        f'  File "{C10D}", line 1 in all_reduce',
        "",
        "Current thread 0x00007f4020457b80 (most recent call first):",
    ]
    for frame in frames:
        place, _, function = frame.partition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line} in {function}')
    return remarks + "\n".join(lines) + "\n"


MAIN = ("/srv/train.py:27 main", "/srv/train.py:28 <module>")
WRAPPER = f"{LOGGER}:83 wrapper"

ALL_REDUCE = text(f"{C10D}:3252 all_reduce", WRAPPER, "/srv/train.py:8 step", *MAIN)
BARRIER = text(f"{C10D}:5400 barrier", WRAPPER, "/srv/train.py:9 step", *MAIN)
LOADER = text("/srv/loader.py:4 read", "/srv/train.py:6 step", *MAIN)
SAVING = text("/venv/lib/python3.11/socket.py:705 readinto", "/srv/save.py:7 save", *MAIN)
BACKWARD = text(
    f"{SITE}/torch/autograd/graph.py:979 _engine_run_backward",
    f"{SITE}/torch/autograd/__init__.py:395 backward",
    f"{SITE}/torch/_tensor.py:623 backward",
    "/srv/train.py:15 step",
    *MAIN,
)
WORK_WAIT = text("/srv/train.py:11 step", *MAIN, remarks="# line: dist.all_reduce(t, async_op=True).wait()\n")
STOPPED = "# state: stopped by a signal\n" + ALL_REDUCE
NO_STACK = "# state: no Python stack: sleeping, in the kernel at futex_wait\n# source: the kernel\n"
PY_SPY = textwrap.dedent(f"""\
    # source: py-spy, because it did not answer
    Process 4242
    Thread 4243 (idle): "loader"
        wait (threading.py:320)
    Thread 4242 (active): "MainThread"
        all_reduce ({C10D}:3252)
        wrapper ({LOGGER}:83)
        step (/srv/train.py:8)
        <module> (/srv/train.py:28)
    """)

POSITIONS = {
    "all_reduce": (ALL_REDUCE, Stance.WAITS, "all_reduce"),
    "all_reduce, seen by py-spy": (PY_SPY, Stance.WAITS, "all_reduce"),
    "barrier": (BARRIER, Stance.WAITS, "barrier"),
    "monitored_barrier": (
        text(f"{C10D}:5435 monitored_barrier", "/srv/train.py:10 step"),
        Stance.WAITS,
        "monitored_barrier",
    ),
    "what the program called, not what that called": (
        text(f"{C10D}:4287 all_gather", WRAPPER, f"{C10D}:3513 all_gather_object", WRAPPER, "/srv/train.py:12 step"),
        Stance.WAITS,
        "all_gather_object",
    ),
    "recv": (text(f"{C10D}:2799 recv", WRAPPER, "/srv/train.py:13 step"), Stance.WAITS, "recv"),
    "a reduce_scatter of a framework": (
        text(
            f"{C10D}:4700 reduce_scatter_tensor", WRAPPER, f"{SITE}/megatron/core/x.py:7 _reduce", "/srv/train.py:1 f"
        ),
        Stance.WAITS,
        "reduce_scatter_tensor",
    ),
    "an isend returns at once": (text(f"{C10D}:2600 isend", WRAPPER, "/srv/train.py:1 f"), Stance.ELSEWHERE, ""),
    "the start of a process group": (
        text(
            f"{C10D}:2169 _new_process_group_helper",
            f"{C10D}:1899 init_process_group",
            f"{LOGGER}:97 wrapper",
            WRAPPER,
            "/srv/train.py:25 main",
        ),
        Stance.WAITS,
        "init_process_group",
    ),
    "the store of a process group": (
        text(
            f"{SITE}/torch/distributed/rendezvous.py:195 _create_c10d_store",
            f"{SITE}/torch/distributed/rendezvous.py:279 _env_rendezvous_handler",
            f"{C10D}:1800 init_process_group",
            "/srv/train.py:25 main",
        ),
        Stance.WAITS,
        "init_process_group",
    ),
    "a functional collective": (
        text(
            f"{SITE}/torch/_ops.py:1158 __call__",
            f"{SITE}/torch/distributed/_functional_collectives.py:130 wait_tensor",
            "/srv/train.py:18 step",
        ),
        Stance.WAITS,
        "wait_tensor",
    ),
    "FSDP unshards": (
        text(
            f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:371 wait_for_unshard",
            f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_state.py:250 _pre_forward",
            f"{SITE}/torch/_dynamo/eval_frame.py:10 _fn",
            f"{SITE}/torch/nn/modules/module.py:1800 inner",
            "/srv/train.py:18 step",
        ),
        Stance.WAITS,
        "wait_for_unshard",
    ),
    "a model of the user's inside of DDP": (
        text(
            "/srv/model.py:3 forward", f"{SITE}/torch/nn/parallel/distributed.py:1600 forward", "/srv/train.py:14 step"
        ),
        Stance.ELSEWHERE,
        "",
    ),
    "a model of a library inside of FSDP": (
        text(
            f"{SITE}/transformers/models/llama.py:90 forward",
            f"{SITE}/torch/distributed/fsdp/fully_sharded_data_parallel.py:850 unshard",
            "/srv/train.py:14 step",
        ),
        Stance.ELSEWHERE,
        "",
    ),
    "the user's own code inside of a collective": (
        text("/srv/state.py:3 __getstate__", f"{C10D}:3513 all_gather_object", "/srv/train.py:14 step"),
        Stance.ELSEWHERE,
        "",
    ),
    "a checkpoint is written": (
        text(f"{SITE}/torch/distributed/checkpoint/filesystem.py:200 _write_item", "/srv/train.py:14 save"),
        Stance.ELSEWHERE,
        "",
    ),
    "a data loader": (
        text(
            "/usr/lib/python3.11/queue.py:171 get",
            f"{SITE}/torch/utils/data/dataloader.py:1250 _try_get_data",
            f"{SITE}/torch/utils/data/dataloader.py:700 __next__",
            "/srv/train.py:6 step",
        ),
        Stance.ELSEWHERE,
        "",
    ),
    "backward, in which DDP reduces": (BACKWARD, Stance.MAY_WAIT, "backward"),
    "torch.cuda.synchronize": (
        text(f"{SITE}/torch/cuda/__init__.py:985 synchronize", "/srv/train.py:16 step"),
        Stance.MAY_WAIT,
        "synchronize",
    ),
    "Work.wait, by its source line": (WORK_WAIT, Stance.MAY_WAIT, "wait"),
    "item, by its source line": (
        text("/srv/train.py:11 step", remarks="# line: total += loss.item()\n"),
        Stance.MAY_WAIT,
        "item",
    ),
    "a source line says nothing of a call that has frames": (
        text(
            "/usr/lib/python3.11/subprocess.py:1264 wait", "/srv/train.py:11 step", remarks="# line: process.wait()\n"
        ),
        Stance.ELSEWHERE,
        "",
    ),
    "JAX waits for all hosts": (
        text(
            f"{SITE}/jax/_src/array.py:630 _value",
            f"{SITE}/jax/_src/profiler.py:334 wrapper",
            f"{SITE}/jax/experimental/multihost_utils.py:84 sync_global_devices",
            "/srv/train.py:30 main",
        ),
        Stance.WAITS,
        "sync_global_devices",
    ),
    "JAX waits for a device": (
        text(f"{SITE}/jax/_src/array.py:630 _value", f"{SITE}/jax/_src/x.py:3 wrapper", "/srv/train.py:30 main"),
        Stance.MAY_WAIT,
        "_value",
    ),
    "native frames of a collective": (
        'Process 42\nThread 42 (active): "MainThread"\n    ncclGroupEnd (libnccl.so.2)\n    step (/srv/train.py:8)\n',
        Stance.WAITS,
        "ncclGroupEnd",
    ),
    "a stopped process": (STOPPED, Stance.STANDS, ""),
    "stuck in the kernel": ("# state: no Python stack: stuck in the kernel\n", Stance.STANDS, ""),
    "no Python stack": (NO_STACK, Stance.UNKNOWN, ""),
    "nonsense": ("gibberish\n", Stance.UNKNOWN, ""),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_stack_tells_whether_a_rank_waits_for_others(name):
    stacks, stance, call = POSITIONS[name]
    assert position(parse(stacks)) == Position(stance, call)


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
