"""DDP, with an all-reduce and a barrier around it: prints what every rank must agree on."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
ranks = torch.tensor([float(rank)])
dist.all_reduce(ranks)
torch.manual_seed(rank)  # each begins elsewhere: DDP has to bring them together
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((2, 4), rank + 1.0)).mean().backward()
    optimizer.step()
gathered = [torch.empty(1, 4) for _ in range(world)]
dist.all_gather(gathered, model.module.weight.data)
dist.barrier()
print(f"rank {rank} of {world}: sum {ranks.item():g}, same {all(torch.equal(gathered[0], one) for one in gathered)}")
dist.destroy_process_group()
