"""FSDP, the old class and the new function: each rank holds a part, and all compute what one alone would."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def losses(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.arange(32.0).reshape(4, 8) / 32  # the same on all ranks, so that one alone computes the same
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


dist.init_process_group("gloo")
alone = losses(network())
whole = sum(parameter.numel() for parameter in network().parameters())
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
sharded = network()
for layer in (sharded[0], sharded[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(sharded, mesh=mesh)
held = sum(parameter.to_local().numel() for parameter in sharded.parameters())
new_agrees = torch.allclose(torch.tensor(losses(sharded)), torch.tensor(alone), atol=1e-6)
wrapped = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
old_agrees = torch.allclose(torch.tensor(losses(wrapped)), torch.tensor(alone), atol=1e-6)
print(f"rank {dist.get_rank()}: holds a part {held < whole}, fully_shard {new_agrees}, wrapped {old_agrees}")
dist.barrier()
dist.destroy_process_group()
