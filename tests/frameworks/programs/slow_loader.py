"""Rank 1 never comes back from its data loader, and all others wait for it in a collective.

Arguments: how they wait, and the collective's time-out in seconds.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def read() -> None:
    while True:
        time.sleep(600)


def step(how: str, group: dist.ProcessGroup) -> None:
    if os.environ["RANK"] == "1":
        read()
    if how == "work":
        dist.all_reduce(torch.ones(1), group=group, async_op=True).wait()
    else:
        dist.all_reduce(torch.ones(1), group=group)


def main(how: str, timeout_s: str) -> None:
    dist.init_process_group("gloo")
    group = dist.new_group(timeout=timedelta(seconds=float(timeout_s)))
    dist.barrier()
    step(how, group)


if __name__ == "__main__":
    main(*sys.argv[1:])
