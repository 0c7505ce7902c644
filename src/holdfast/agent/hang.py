"""A hang as a failure: the worker to blame, and what is said about it."""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.errors import ProcessFailure
    from holdfast.stacks.wire import RankStacks

STACK_MAX_CHARS = 4_000
"""How much of the hanging worker's stack is in its failure. The file has all of it."""


class Hang:
    """A hang: the worker to blame, as a failure, and the rank of its node; None for this node."""

    __slots__ = ("failure", "node_rank", "rank")

    def __init__(self, rank: int, failure: ProcessFailure, node_rank: int | None) -> None:
        self.rank = rank
        self.failure = failure
        self.node_rank = node_rank


def description(why: str, verdict: str, file: str, stacks: RankStacks | None) -> str:
    """What a hang's failure says: why, the verdict on the stacks of all ranks, their file, and the worker's own."""
    lines = [why, verdict]
    if file:
        lines.append(f"the stacks of all ranks: {file}")
    if stacks is not None:
        lines += ["", *main_stack(stacks.text)]
    return "\n".join(lines)[:STACK_MAX_CHARS]


def hung_failure(local_rank: int, message: str, stacks: RankStacks | None, ran_s: float) -> ProcessFailure:
    """The failure of a worker that hangs. The agent ends it only after this."""
    from holdfast.errors.failure import Failure, ProcessFailure, data_without_file
    from holdfast.errors.kind import FailureKind

    record = Failure(
        local_rank=local_rank,
        host=os.uname().nodename if stacks is None else stacks.host,
        pid=0 if stacks is None else stacks.pid,
        exit_code=-signal.SIGTERM,
        kind=FailureKind.HANG,
        message=message,
        where="" if stacks is None else where(stacks.text),
        ran_s=ran_s,
        timestamp=time.time(),
        error_file_data=data_without_file(-signal.SIGTERM),
    )
    return ProcessFailure.of(record)


def main_stack(text: str) -> list[str]:
    from holdfast.stacks.parse import parse

    stacks = parse(text)
    if stacks.main is None:
        return [stacks.state] if stacks.state else []
    frames = (f'  File "{frame.file}", line {frame.line} in {frame.function}' for frame in stacks.main.frames)
    return ["Main thread (most recent call first):", *frames]


def where(text: str) -> str:
    from holdfast.errors.diagnosis import where_in

    return where_in("\n".join(main_stack(text)))
