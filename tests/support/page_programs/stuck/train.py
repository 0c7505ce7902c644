"""A training program of which one rank is stuck where the others are not. Each says in a pipe that it is there."""

import os
import sys

import data

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
from torch.distributed import distributed_c10d  # a stand-in, which waits


def step():
    if os.environ["RANK"] == "5":
        data.read_shard(sys.argv[1])
    else:
        distributed_c10d.all_reduce(sys.argv[1])


step()
