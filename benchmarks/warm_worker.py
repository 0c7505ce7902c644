"""A worker that imports torch, meets the others, and takes down when it was so far.

`warm_worker.py DIRECTORY`: in its first attempt rank 0 crashes as soon as all are there; in the second all wait.
"""

from __future__ import annotations

import time

import torch

imported_ns = time.monotonic_ns()

import datetime as dt  # noqa: E402 - what is measured is the moment before
import os  # noqa: E402 - as above
import signal  # noqa: E402 - as above
import sys  # noqa: E402 - as above

import torch.distributed as dist  # noqa: E402 - as above

ATTEMPT, RANK = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]


def note(what: str, value: int) -> None:
    path = os.path.join(sys.argv[1], f"{what}.{ATTEMPT}.{RANK}")
    with open(f"{path}.new", "w") as file:
        file.write(str(value))
    os.rename(f"{path}.new", path)


def main() -> None:
    note("imported", imported_ns)
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
    total = torch.ones(1)
    dist.all_reduce(total)
    note("reduced", time.monotonic_ns())
    assert total.item() == dist.get_world_size()
    dist.barrier()
    note("idle", os.getpid())
    if ATTEMPT == "0" and RANK == "0":
        # The others have noted all they had to before they came here, but for the last line.
        while len([name for name in os.listdir(sys.argv[1]) if name.startswith("idle.0.")]) < dist.get_world_size():
            time.sleep(0.001)
        note("crashed", time.monotonic_ns())
        os._exit(3)
    signal.pause()


main()
