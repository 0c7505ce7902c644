"""Whether a rank waits for others, by its stack as faulthandler and py-spy write it."""

from __future__ import annotations

import pytest
from stack_texts import (
    ALL_REDUCE,
    BACKWARD,
    BARRIER,
    C10D,
    LOGGER,
    NO_STACK,
    PY_SPY,
    SITE,
    STOPPED,
    WORK_WAIT,
    WRAPPER,
    text,
)

from holdfast.stacks.parse import parse
from holdfast.stacks.waiting import Position, Stance, position

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


def test_the_most_suspicious_stance_comes_first():
    """Those who judge a hang sort by it."""
    assert min(Stance) is Stance.STANDS
    assert Stance.ELSEWHERE < Stance.MAY_WAIT < Stance.WAITS


@pytest.mark.parametrize("call", ["wait", "synchronize", "barrier", "item", "cpu", "tolist"])
def test_a_source_line_of_the_innermost_frame_is_a_weak_sign(call):
    stacks = text("/srv/train.py:11 step", remarks=f"# line: value = thing.{call}()\n")
    assert position(parse(stacks)) == Position(Stance.MAY_WAIT, call)


def test_a_source_line_that_only_names_a_wait_is_none():
    stacks = text("/srv/train.py:11 step", remarks="# line: waiting = queue.wait_time\n")
    assert position(parse(stacks)) == Position(Stance.ELSEWHERE)


@pytest.mark.parametrize("name", ["wait", "reduce", "allreduce", "new_group", "barrier"])
@pytest.mark.parametrize("file", [C10D, f"{SITE}/torch/distributed/fsdp/x.py", f"{SITE}/horovod/x.py"])
def test_no_name_takes_long(file, name):
    """A node may send stacks of a mebibyte: an expression that takes quadratic time would take long for them."""
    stacks = text(*[f"{file}:1 _new_{name * (3_000 // len(name))}-"] * 300)
    assert position(parse(stacks)).stance in Stance
