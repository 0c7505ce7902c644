"""Train with JAX on all workers of a job: each has a part of the batch, and the compiler adds up the gradients.

holdfast run --nproc-per-node 2 examples/train_jax.py --directory /tmp/jax

JAX finds the coordinator by itself (JAX_COORDINATOR_ADDRESS); who it is among how many, it wants to be told.
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import worker

SEED, BATCH = 7, 96  # a batch is shared by all devices


def batch_of(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Points near the line y = 3x + 2: those that all workers together take in a step."""
    random = np.random.default_rng((SEED, step))
    x = random.random((BATCH, 1), np.float32)
    return x, 3 * x + 2 + random.standard_normal((BATCH, 1), np.float32) / 100


def loss_of(line: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((line[0] * x + line[1] - y) ** 2)


@jax.jit
def trained(line: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return line - 0.3 * jax.grad(loss_of)(line, x, y)


def save(path: str, line: np.ndarray, next_step: int) -> None:
    """Written under another name first: no crash leaves half a checkpoint."""
    with open(f"{path}.new", "wb") as file:
        np.savez(file, line=line, next_step=next_step)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, help="for the checkpoint")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)

    jax.distributed.initialize(num_processes=worker.world_size(), process_id=worker.rank(), shutdown_timeout_seconds=10)
    mesh = Mesh(jax.devices(), ("batch",))
    split, everywhere = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())

    path = os.path.join(options.directory, "checkpoint.npz")
    line, first = np.zeros(2, np.float32), 0
    if os.path.exists(path):
        with np.load(path) as saved:
            line, first = saved["line"], int(saved["next_step"])
    # One worker's word counts, so that all go on from the same.
    line, first = multihost_utils.broadcast_one_to_all((line, np.int32(first)))
    line = jax.device_put(np.asarray(line), everywhere)

    for step in range(int(first), options.steps):
        x, y = (jax.make_array_from_callback(part.shape, split, part.__getitem__) for part in batch_of(step))
        line = trained(line, x, y)
        stop = multihost_utils.process_allgather(np.array(worker.stop_requested())).any()
        if jax.process_index() == 0 and (stop or (step + 1) % 50 == 0 or step + 1 == options.steps):
            save(path, np.asarray(line), step + 1)
        if stop:
            return
    if jax.process_index() == 0:
        weight, bias = np.asarray(line)
        print(f"{jax.process_count()} workers, {jax.device_count()} devices: y = {weight:.1f}x + {bias:.1f}")


if __name__ == "__main__":
    main()
