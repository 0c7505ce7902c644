"""A worker fails in the first attempt."""

import os

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
jax.distributed.initialize(num_processes=int(os.environ["WORLD_SIZE"]), process_id=rank, shutdown_timeout_seconds=1)
multihost_utils.process_allgather(jnp.zeros(1))
if (attempt, rank) == (0, 1):
    raise RuntimeError("once is enough")
multihost_utils.process_allgather(jnp.zeros(1))
print(f"attempt {attempt}: {rank} done")
