"""Whether a rank waits for other ranks, judged by its stack. Pure.

Python frames name most collectives. Some waits are calls into native code that leave no frame of their own: a
`Work.wait()`, a `tensor.item()`, a DDP reduction inside `backward`. There, the source line of the innermost frame, or
the library function that entered native code, is a weaker sign.
"""

from __future__ import annotations

import re
from enum import IntEnum

from msgspec import Struct

from holdfast.stacks.grouping import library_calls
from holdfast.stacks.parse import Frame, Stacks  # noqa: TC001 - msgspec reads the annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


NAME_MAX_CHARS = 256
"""How much of a function's name is looked at: the expressions below take quadratic time."""


class Stance(IntEnum):
    """How a rank takes part in the group, the most suspicious first."""

    STANDS = 0
    """Its process cannot run: a signal or a debugger stopped it, or it is stuck in the kernel."""

    ELSEWHERE = 1
    """It runs code that is not known to wait for other ranks."""

    UNKNOWN = 2
    """Unknown: it has no Python stack."""

    MAY_WAIT = 3
    """It is in a call that may wait for other ranks, or only compute: a backward pass, a device synchronization."""

    WAITS = 4
    """It is inside a collective, a barrier or a rendezvous."""


class Position(Struct, frozen=True):
    """A rank's stance, and the call that it waits in, such as "all_reduce"; "" if it does not wait."""

    stance: Stance
    call: str = ""


_C10D = "/torch/distributed/"

_COLLECTIVES = (
    r"_?(?:all_)?(?:reduce|gather|scatter|to_all)\w*|broadcast\w*|send\w*|recv\w*|\w*barrier"
    r"|(?:init|destroy)_process_group|_?new_\w*group\w*|split_group|batch_isend_irecv"
)

_WAITS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (path, re.compile(rf"(?:{functions})$"))
    for path, functions in (
        ("/torch/distributed/distributed_c10d.py", _COLLECTIVES),
        ("/torch/distributed/rendezvous.py", r"\w+"),
        ("/torch/distributed/utils.py", r"_sync_\w+|_verify_param_shape_across_processes"),
        ("/torch/distributed/_functional_collectives.py", r"\w+"),
        ("/torch/distributed/_symmetric_memory/__init__.py", r"\w*barrier\w*|rendezvous"),
        ("/torch/distributed/fsdp/", r"\w*(?:wait|all_gather|unshard|reduce)\w*"),
        ("/torch/distributed/tensor/_collective_utils.py", r"\w+"),
        ("/torch/distributed/rpc/", r"init_rpc|shutdown|_wait_all|_all_gather|_barrier"),
        ("/torch/nn/parallel/distributed.py", r"_sync_\w+|_verify_\w+|_check_global_requires_backward_grad_sync"),
        ("/jax/experimental/multihost_utils.py", r"\w+"),
        ("/jax/_src/distributed.py", r"\w+"),
        (
            "/horovod/",
            r"\w*(?:allreduce|allgather|broadcast|reducescatter|alltoall)\w*|barrier|synchronize|join",
        ),
    )
)
"""Functions that return only when other ranks have reached them too."""

_MAY_WAIT: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (path, re.compile(rf"(?:{functions})$"))
    for path, functions in (
        ("/torch/autograd/graph.py", r"_engine_run_backward"),
        ("/torch/autograd/__init__.py", r"backward|grad"),
        ("/torch/_tensor.py", r"backward|__format__|__repr__|__array__"),
        ("/torch/cuda/", r"synchronize|wait_\w+"),
        ("/jax/_src/array.py", r"_value|block_until_ready|__float__|__int__|__array__|item|tolist"),
        ("/jax/_src/api.py", r"block_until_ready|device_get"),
    )
)
"""Functions that wait for native code, which may be a collective of this rank."""

_NATIVE = re.compile(r"\bnccl|\bgloo::|\bc10d::|\bPMPI_|\bMPI_", re.IGNORECASE)
"""Native frames of a collective, for sources that show native frames."""

_TRANSPARENT = (
    *("/torch/_ops.py", "/torch/utils/_contextlib.py", "/torch/_dynamo/", "/torch/_compile.py"),
    *("/contextlib.py", "/functools.py", "/jax/", "/jaxlib/"),
)
"""Files that only pass a call on: their caller decides."""

_WAITING_LINE = re.compile(
    r"\.(?P<call>wait|wait_stream|synchronize|block_until_ready|barrier|item|cpu|tolist|numpy)\("
)
"""Source lines that wait for other ranks, if they concern tensors or collectives, in native code without a frame."""

_STANDING = ("stopped", "stuck in the kernel")


def position(stacks: Stacks) -> Position:
    """Whether the main thread waits for other ranks."""
    if any(word in stacks.state for word in _STANDING):
        return Position(Stance.STANDS)
    if stacks.main is None or not stacks.main.frames:
        return Position(Stance.UNKNOWN)
    # Only what the user's innermost line called: DDP's `forward` is on the stack of every line of a model.
    calls = library_calls(stacks)
    native = calls[0].function if calls and _NATIVE.search(calls[0].function) else ""
    if call := _outermost(calls, _WAITS) or native:
        return Position(Stance.WAITS, call)
    line = None if calls else _WAITING_LINE.search(stacks.line)
    if call := _outermost(calls, _MAY_WAIT) or (line["call"] if line else ""):
        return Position(Stance.MAY_WAIT, call)
    return Position(Stance.ELSEWHERE)


def _outermost(calls: Sequence[Frame], table: Sequence[tuple[str, re.Pattern[str]]]) -> str:
    """The name of the outermost call in `table`: the one that the program made. "" if the innermost call that counts is
    not in the table.
    """
    found = ""
    for frame in calls:
        name = frame.function.rpartition(".")[2][:NAME_MAX_CHARS]
        if any(path in frame.file and functions.match(name) for path, functions in table):
            if not found or not name.startswith("_"):
                found = name
        elif not (_C10D in frame.file or any(part in frame.file for part in _TRANSPARENT)):
            break
    return found
