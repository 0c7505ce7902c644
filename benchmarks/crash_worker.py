"""One of a set in which rank 0 crashes. Each writes to its file when it crashed, or when SIGTERM reached it.

Arguments: rank, size of the set, directory, seconds from all being ready to the crash, and how to crash.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn

BY_EXIT, BY_SIGNAL = "exit", "SIGKILL"

LIFE_MAX_S = 60
"""Nobody waits that long for this; whoever started it is gone."""


def main(rank: int, size: int, directory: str, delay_s: float, how: str) -> None:
    signal.alarm(LIFE_MAX_S)
    clock = os.open(os.path.join(directory, str(rank)), os.O_WRONLY | os.O_CREAT)
    # For reading as well, or the first reader would see the end whenever no writer is there yet.
    ready = os.open(os.path.join(directory, "ready"), os.O_RDWR)

    def on_term(_signum: int, _frame: object) -> NoReturn:
        os.write(clock, b"%d" % time.monotonic_ns())
        os._exit(0)

    if rank != 0:
        signal.signal(signal.SIGTERM, on_term)
        os.write(ready, b".")
        while True:
            signal.pause()
    seen = 0
    while seen < size - 1:
        seen += len(os.read(ready, size))
    time.sleep(delay_s)
    os.write(clock, b"%d" % time.monotonic_ns())
    if how == BY_SIGNAL:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5])
