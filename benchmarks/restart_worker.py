"""The end of a worker's program, below its imports. It takes down when it came here; in the first attempt rank 0
crashes once all are here, in the second all end. Arguments: a directory, and the number of workers.
"""

import os
import signal
import sys
import time

came_ns = time.monotonic_ns()

LIFE_MAX_S = 100  # whoever started it is gone by then


def note(what: str, value: int) -> None:
    path = os.path.join(sys.argv[1], f"{what}.{attempt}.{os.environ['RANK']}")
    with open(f"{path}.new", "w") as file:
        file.write(str(value))
    os.rename(f"{path}.new", path)


signal.alarm(LIFE_MAX_S)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
note("imported", came_ns)
if attempt == "0" and os.environ["RANK"] != "0":
    signal.pause()
elif attempt == "0":
    wanted = [os.path.join(sys.argv[1], f"imported.0.{rank}") for rank in range(int(sys.argv[2]))]
    while not all(map(os.path.exists, wanted)):
        time.sleep(0.001)
    time.sleep(0.1)  # the launcher is in its wait by then
    note("crashed", time.monotonic_ns())
    os._exit(3)
