"""A wall clock that is wrong: in every Python program that has this directory in its PYTHONPATH and CLOCK_VARIABLE in
its environment, an agent and its workers say.

The monotonic clock, and the times that the kernel gives files, stay as they are.
"""  # noqa: INP001 - a directory to look for modules in, not a package

import os
import time

CLOCK_VARIABLE = "TEST_CLOCK_OFFSET_S"


def _shift(offset_s: int) -> None:
    true_time, true_time_ns = time.time, time.time_ns
    time.time = lambda: true_time() + offset_s
    time.time_ns = lambda: true_time_ns() + offset_s * 1_000_000_000


_shift(int(os.environ.get(CLOCK_VARIABLE, "0")))
