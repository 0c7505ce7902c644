"""A wall clock that is wrong: in every Python program that has this directory in its PYTHONPATH, an agent and its
workers say. TEST_CLOCK_OFFSET_S says by how much.

The monotonic clock, and the times that the kernel gives files, stay as they are. gRPC is shown the true time: its C
part compares with the kernel's clock what its Python part takes from this one.
"""

import os
import sys
import time


def _shift(offset_s):
    true_time, true_time_ns = time.time, time.time_ns

    def is_grpc():
        caller = sys._getframe(2).f_globals.get("__name__", "")
        return caller.partition(".")[0] == "grpc"

    time.time = lambda: true_time() + (0 if is_grpc() else offset_s)
    time.time_ns = lambda: true_time_ns() + (0 if is_grpc() else offset_s * 1_000_000_000)


_shift(int(os.environ["TEST_CLOCK_OFFSET_S"]))
