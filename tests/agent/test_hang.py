"""A hang as a failure."""

from __future__ import annotations

import signal

from holdfast.agent.hang import STACK_MAX_CHARS, description, hung_failure
from holdfast.errors.kind import FailureKind
from holdfast.stacks.wire import RankStacks

TEXT = """Current thread 0x01 (most recent call first):
  File "/srv/train.py", line 7 in load
  File "/srv/train.py", line 42 in <module>
"""


def test_the_failure_names_the_place_of_the_main_thread():
    failure = hung_failure(1, "it made no progress", RankStacks("node9", 4711, TEXT), 12.5)
    assert (failure.local_rank, failure.pid, failure.exitcode) == (1, 4711, -signal.SIGTERM)
    assert (failure.kind, failure.host, failure.ran_s) == (FailureKind.HANG, "node9", 12.5)
    assert failure.where == "/srv/train.py:7 in load"


def test_a_worker_without_stacks_is_blamed_too():
    failure = hung_failure(0, "it made no progress", None, 1.0)
    assert (failure.pid, failure.where, failure.kind) == (0, "", FailureKind.HANG)


def test_the_description_ends_with_the_workers_own_stack_and_is_limited():
    said = description("no heartbeat", "rank 1 is elsewhere", "/run/stacks/hang.txt", RankStacks("node9", 1, TEXT))
    assert said.splitlines()[:3] == [
        "no heartbeat",
        "rank 1 is elsewhere",
        "the stacks of all ranks: /run/stacks/hang.txt",
    ]
    assert said.splitlines()[-1] == '  File "/srv/train.py", line 42 in <module>'
    assert len(description("x" * 2 * STACK_MAX_CHARS, "", "", None)) == STACK_MAX_CHARS
