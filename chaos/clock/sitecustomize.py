"""A wall clock that is wrong, and can be shifted while programs run: in every Python program that has this directory in
its PYTHONPATH. CHAOS_CLOCK is a file with one number of eight bytes: how many seconds it is ahead of the true time.

The monotonic clock, and the times that the kernel gives files, stay as they are. gRPC is shown the true time: its C
part compares with the kernel's clock what its Python part takes from this one.
"""  # noqa: INP001 - a directory to look for modules in, not a package

import mmap
import os
import sys
import time


def _shift(path: str) -> None:
    true_time, true_time_ns = time.time, time.time_ns
    with open(path, "rb") as file:
        offset = memoryview(mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)).cast("q")

    def is_grpc() -> bool:
        caller = sys._getframe(2).f_globals.get("__name__", "")  # noqa: SLF001 - there is no other way to know
        return str(caller).partition(".")[0] == "grpc"

    time.time = lambda: true_time() + (0 if is_grpc() else offset[0])
    time.time_ns = lambda: true_time_ns() + (0 if is_grpc() else offset[0] * 1_000_000_000)


_shift(os.environ["CHAOS_CLOCK"])
