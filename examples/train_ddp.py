"""Train a small network on all workers of a job, and go on where it was when workers and machines come and go.

holdfast run --nproc-per-node 2 --max-restarts 3 examples/train_ddp.py --directory /tmp/spirals

Three things make it elastic; take them over into a program of your own:

- a step takes the same samples, in the same order, however many workers share them;
- a checkpoint is there as a whole or not at all, and says which step is the next;
- all workers agree on the step that is the last when the job is to stop or to grow.

The directory has to be one that all machines see.
"""

import argparse
import io
import json
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

from holdfast import worker

SEED, SAMPLES, BATCH = 7, 2048, 64  # a batch is shared by all workers


def spirals() -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two spirals that turn around each other, and which of the two each is of."""
    random = torch.Generator().manual_seed(SEED)
    label = torch.arange(SAMPLES) % 2
    distance = torch.rand(SAMPLES, generator=random).sqrt()
    angle = 9 * distance + torch.pi * label
    noise = torch.randn(SAMPLES, 2, generator=random) / 100
    return torch.stack([distance * angle.cos(), distance * angle.sin()], dim=1) + noise, label.float()


def samples_of(step: int) -> torch.Tensor:
    """Which samples all workers together take in a step: a new order in each epoch, and it is the step that says so."""
    epoch, position = divmod(step, SAMPLES // BATCH)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch))
    return order[position * BATCH : (position + 1) * BATCH]


def save(path: str, state: dict[str, object]) -> None:
    """Written under another name and on the disk before it has its own: no crash leaves half a checkpoint."""
    with open(f"{path}.new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)  # the new name, too, survives a power cut
    os.close(directory)


def note(directory: str, **facts: object) -> None:
    """A line in the job's history, on the disk when this returns."""
    with open(os.path.join(directory, "history.jsonl"), "a") as file:
        file.write(json.dumps({**facts, "generation": worker.generation()}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def shared_checkpoint(path: str, device: torch.device) -> dict[str, Any] | None:
    """The checkpoint, for all workers. Rank 0 alone reads the file, so that all of them resume from the same step."""
    is_first = dist.get_rank() == 0
    content = b""
    if is_first and os.path.exists(path):
        with open(path, "rb") as file:
            content = file.read()
    size = torch.tensor([len(content)], device=device)
    dist.broadcast(size, 0)
    if not size.item():
        return None
    data = torch.empty(int(size.item()), dtype=torch.uint8, device=device)
    if is_first:
        data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    dist.broadcast(data, 0)
    return torch.load(io.BytesIO(bytes(data.tolist())), map_location="cpu")


def train(options: argparse.Namespace, device: torch.device) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    points, labels = (tensor.to(device) for tensor in spirals())
    torch.manual_seed(SEED)
    layers = [torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1)]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)

    path = os.path.join(options.directory, "checkpoint.pt")
    saved = shared_checkpoint(path, device)
    if saved:
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
    first = saved["next_step"] if saved else 0
    if rank == 0:
        note(options.directory, resumed_at=first, world=world)

    model = DistributedDataParallel(network)
    for step in range(first, options.steps):
        # From step and rank, so that there is no random state to save and to share out again.
        torch.manual_seed(SEED + step * world + rank)
        mine = samples_of(step)[rank::world].to(device)
        logits = model(points[mine]).squeeze(1)
        loss = binary_cross_entropy_with_logits(logits, labels[mine], reduction="sum") / BATCH
        optimizer.zero_grad()
        (loss * world).backward()  # the mean over the workers is then the mean over the batch, however it is split
        optimizer.step()
        worker.heartbeat(step)

        shared = torch.tensor([loss.item(), len(mine), worker.stop_requested()], device=device)
        dist.all_reduce(shared)  # one worker may hear of the stop a step earlier than another: now all know
        mean_loss, samples, stop = shared.tolist()
        if rank == 0:
            note(options.directory, step=step, samples=int(samples), loss=mean_loss, world=world)
            if stop or (step + 1) % options.checkpoint_every == 0 or step + 1 == options.steps:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "next_step": step + 1}
                save(path, state)
                note(options.directory, saved=step + 1)
        if stop:
            return  # exit code 0: done with what was asked for
        time.sleep(options.pause)
    if rank == 0:
        network.eval()
        right = ((network(points).squeeze(1) > 0) == labels.bool()).float().mean().item()
        print(f"step {options.steps}: {right:.1%} of the points are on the right spiral", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, help="for the checkpoint and the history")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--pause", type=float, default=0, metavar="SECONDS", help="seconds to wait after each step")
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", worker.local_rank()) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    train(options, device)
    dist.barrier()  # nobody leaves while collectives are under way: torch's threads abort a process that ends too early
    dist.destroy_process_group()  # not after a failure, when it might wait for the others


if __name__ == "__main__":
    main()
