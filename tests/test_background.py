from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from holdfast.background import all_at_once, begin

PATIENCE_S = 60.0

LEAVES_A_CALL_BEHIND = """
import asyncio, signal
from holdfast.background import begin
async def wait_for(call):
    try:
        async with asyncio.timeout(0):
            await asyncio.wrap_future(begin(call))
    except TimeoutError:
        print("given up")
asyncio.run(wait_for(signal.pause))
"""


def test_a_process_ends_while_a_call_is_stuck():
    command = [sys.executable, "-c", LEAVES_A_CALL_BEHIND]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "given up\n", "")


def test_results_come_in_the_order_of_the_items():
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def meet(item):
        both.wait()
        return item * 2

    assert all_at_once(meet, [4, 3]) == [8, 6]


def test_what_a_call_raises_is_raised_to_the_one_who_waits():
    def fail():
        raise LookupError("no such name")

    with pytest.raises(LookupError, match="no such name"):
        begin(fail).result(PATIENCE_S)
