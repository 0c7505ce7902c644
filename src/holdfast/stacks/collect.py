"""The stacks of this machine's workers: requested by a signal, or taken from outside if a worker does not answer."""

from __future__ import annotations

import os
import select
import time

from holdfast.errors.text import clipped
from holdfast.stacks.asking import Answer, WorkerTarget, ask
from holdfast.stacks.remarks import with_remarks
from holdfast.stacks.spy import spy
from holdfast.stacks.wire import RankStacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

COLLECT_MAX_S = 15.0
"""The longest time to collect the stacks of this machine's workers."""

ANSWER_MAX_S = 3.0
"""How long a worker has to answer the signal. It takes a few milliseconds on an idle machine."""

QUIET_S = 0.2
"""An answer is complete when its file has not grown for this long."""

STEP_S = 0.02
"""The polling interval for the files. They send no notification; but the wait is short, and happens once in a hang."""

STACKS_MAX_CHARS = 64 * 1024
"""How much is kept for a rank: the beginning, and the end with the main thread."""


def _nothing() -> None:
    pass


def collect(
    workers: Mapping[int, WorkerTarget],
    timeout_s: float = COLLECT_MAX_S,
    meanwhile: Callable[[], object] = _nothing,
) -> dict[int, str]:
    """The stacks of every running worker, by the keys of `workers`, in at most about `timeout_s`.

    Parse each text with `holdfast.stacks.parse`. Workers that have ended are left out. `meanwhile` is called again and
    again: the longest pause is a look at one process from outside, `spy.SPY_MAX_S`.
    """
    begin = time.monotonic()
    asked: dict[int, Answer] = {}
    try:
        for rank, target in workers.items():
            answer = ask(target)
            if answer is not None:
                asked[rank] = answer
        _await(asked.values(), begin + min(ANSWER_MAX_S, timeout_s / 2), meanwhile)
        texts = {rank: answer.text() for rank, answer in asked.items()}
    finally:
        for answer in asked.values():
            answer.close()
    for rank, target in workers.items():
        if not texts.get(rank):
            meanwhile()
            texts[rank] = spy(target.pid, begin + timeout_s - time.monotonic())
    return {rank: clipped(texts[rank], STACKS_MAX_CHARS) for rank in workers if texts[rank]}


def ranks_here(
    workers: Mapping[int, WorkerTarget],
    steps: Mapping[int, int] | None = None,
    timeout_s: float = COLLECT_MAX_S,
    meanwhile: Callable[[], object] = _nothing,
) -> dict[int, RankStacks]:
    """Like `collect`, for a dump: each with its host and process, the step of its last heartbeat if `steps` has it, and
    the source line of its innermost frame.
    """
    host = os.uname().nodename
    texts = collect(workers, timeout_s, meanwhile)
    told = steps or {}
    return {
        rank: RankStacks(host, workers[rank].pid, with_remarks(text, told.get(rank, -1)))
        for rank, text in texts.items()
    }


class _Listening:
    """An answer that is still arriving."""

    __slots__ = ("_answer", "_changed_at", "_size", "is_over")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._size = 0
        self._changed_at = 0.0
        self.is_over = False

    def look(self, now: float) -> None:
        size = self._answer.size()
        if size != self._size:
            self._size, self._changed_at = size, now
        elif size > 0 and now - self._changed_at >= QUIET_S:
            self.is_over = self._answer.text().endswith("\n")  # a busy machine may pause in the middle of a line


def _await(answers: Iterable[Answer], deadline: float, meanwhile: Callable[[], object]) -> None:
    waiting = {answer.pidfd: _Listening(answer) for answer in answers}
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting and (now := time.monotonic()) < deadline:
        for fd, _ in poll.poll(STEP_S * 1000):
            waiting[fd].is_over = True  # the process has ended
        for fd, listening in list(waiting.items()):
            listening.look(now)
            if listening.is_over:
                del waiting[fd]
                poll.unregister(fd)
        meanwhile()
