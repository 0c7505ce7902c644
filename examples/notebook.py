"""A notebook's cells: a function that is defined in one of them runs on several workers, and its results come back.

`# %%` begins a cell: Jupyter (with jupytext), VS Code and PyCharm open this file as a notebook. It also runs as it is:

python examples/notebook.py
"""

# %% What the workers will see: they are forked, so all that the notebook has loaded is theirs, too
import torch
import torch.distributed as dist

from holdfast.launcher import LaunchConfig, elastic_launch

points = torch.arange(8.0)
target = 3 * points + 2

# %% What each worker does


def fit(steps: int) -> tuple[float, float]:
    """Find the line through the points; each worker looks at some of them."""
    dist.init_process_group("gloo")
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    line = torch.zeros(2, requires_grad=True)
    for _ in range(steps):
        error = (line[0] * points[mine] + line[1] - target[mine]).square().sum() / len(points)
        (slope,) = torch.autograd.grad(error, line)
        dist.all_reduce(slope)
        with torch.no_grad():
            line -= 0.03 * slope
    dist.destroy_process_group()
    weight, bias = line.tolist()
    return weight, bias


# %% Run it on two workers of this machine

config = LaunchConfig(
    min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", start_method="fork", max_restarts=0
)
if __name__ == "__main__":
    results = elastic_launch(config, fit)(1000)
    for rank, (weight, bias) in results.items():
        print(f"worker {rank}: y = {weight:.2f}x + {bias:.2f}")
