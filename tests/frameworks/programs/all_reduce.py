"""A worker that asks all others for a sum, and says whose `record` it has imported."""

import os

import torch
from torch import distributed
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    distributed.init_process_group("gloo")
    ones = torch.ones(1)
    distributed.all_reduce(ones)
    whose = "page" if "HOLDFAST_WORKER_PAGE" in os.environ else "no page"
    os.write(1, f"rank {distributed.get_rank()}: sum {ones.item():g}, {whose}, {record.__module__}\n".encode())
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
